/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The names of a file's tensors, for completion. Ignores errors. */
#ifndef PICI_TOOLS_NAMES_H
#define PICI_TOOLS_NAMES_H

/* Call offer(begun, "", NAME, DTYPE) for each tensor of the .pici or .safetensors file at path, unless its name needs
 * escapes or several lines. */
void names_each(const char *path, const char *begun,
                void (*offer)(const char *begun, const char *dashes, const char *word, const char *meaning));

#endif
