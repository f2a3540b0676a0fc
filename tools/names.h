/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The names of a file's tensors, for completion. Errors are not reported. */
#ifndef PICI_TOOLS_NAMES_H
#define PICI_TOOLS_NAMES_H

/* Call offer(begun, "", NAME, DTYPE) for each tensor of the .pici or .safetensors file at path whose name can be shown
 * on one line without escapes. */
void names_each(const char *path, const char *begun,
                void (*offer)(const char *begun, const char *dashes, const char *word, const char *meaning));

#endif
