/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/canvas.h"

void ink_colour(unsigned ink, uint8_t rgb[3])
{
    static const uint8_t others[INK_END - HEAT_TOP - 1][3] = {
        {255, 255, 255}, {32, 32, 40}, {118, 118, 128}, {160, 160, 170}};
    if (ink <= HEAT_TOP)
        heat_colour(ink, rgb);
    else
        for (int i = 0; i < 3; i++)
            rgb[i] = others[ink - HEAT_TOP - 1][i];
}
