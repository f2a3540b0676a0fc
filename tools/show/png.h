/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_TOOLS_SHOW_PNG_H
#define PICI_TOOLS_SHOW_PNG_H

#include "show/canvas.h"

/* A canvas that writes a PNG file to output. NULL: no memory, or too large for this encoder. */
struct canvas *canvas_png(struct output *output, unsigned width, unsigned height);

#endif
