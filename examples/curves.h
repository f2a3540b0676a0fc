/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loss curves of several runs in one picture, an SVG file. */
#ifndef EXAMPLES_CURVES_H
#define EXAMPLES_CURVES_H

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct curve {
    const char *name, *note; /* the note follows the name */
    const double *y;         /* [points], above 0 */
};

/* The mean of the points around one, so that lines can be told apart. */
static double curve_at(const struct curve *c, int points, int i)
{
    const int width = points / 40 + 1, from = i < width ? 0 : i - width,
              to = i + width < points ? i + width : points - 1;
    double sum = 0;
    for (int k = from; k <= to; k++)
        sum += c->y[k];
    return sum / (to - from + 1);
}

/* Draw them with a linear scale from 0. False: the file cannot be written; errno says why. */
static bool curves_write(const char *path, const char *title, const struct curve *curve, int curves, int points)
{
    enum { WIDE = 640, HIGH = 360, LEFT = 60, TOP = 40, RIGHT = 330, BOTTOM = 40, LINE = 18, TICKS = 5 };
    static const char *const colour[] = {"#000000", "#e69f00", "#56b4e9", "#0072b2", "#cc79a7",
                                         "#009e73", "#d55e00", "#999999", "#882255", "#332288"};
    FILE *const f = fopen(path, "wb");
    double most = 0;
    if (!f)
        return false;
    for (int i = 0; i < curves; i++)
        for (int k = 0; k < points; k++)
            most = fmax(most, curve_at(&curve[i], points, k));
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n<text x=\"%d\" "
            "y=\"24\">%s</text>\n",
            LEFT + WIDE + RIGHT, TOP + HIGH + BOTTOM, LEFT, title);
    for (int i = 0; i <= TICKS; i++) {
        const int y = TOP + HIGH - HIGH * i / TICKS, x = LEFT + WIDE * i / TICKS;
        fprintf(f,
                "<path d=\"M%d %dH%d\" stroke=\"#dddddd\"/><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.3g</text>\n",
                LEFT, y, LEFT + WIDE, LEFT - 6, y + 4, most * i / TICKS);
        fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x, TOP + HIGH + LINE,
                points * i / TICKS);
    }
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">step</text>\n", LEFT + WIDE, TOP + HIGH + 2 * LINE);
    for (int i = 0; i < curves; i++) {
        const char *const ink = colour[i % (int)(sizeof colour / sizeof *colour)];
        fprintf(f, "<path fill=\"none\" stroke-width=\"1.5\" stroke=\"%s\" d=\"", ink);
        for (int k = 0; k < points; k++) {
            const double x = LEFT + (double)WIDE * k / (points > 1 ? points - 1 : 1),
                         y = TOP + HIGH - HIGH * curve_at(&curve[i], points, k) / (most > 0 ? most : 1);
            fprintf(f, "%s%c%.1f %.1f", k % 8 ? "" : "\n", k ? 'L' : 'M', x, y);
        }
        fprintf(
            f,
            "\"/>\n<path stroke-width=\"4\" stroke=\"%s\" d=\"M%d %dh24\"/>\n<text x=\"%d\" y=\"%d\">%s: %s</text>\n",
            ink, LEFT + WIDE + 14, TOP + i * LINE, LEFT + WIDE + 44, TOP + i * LINE + 4, curve[i].name, curve[i].note);
    }
    fprintf(f, "</svg>\n");
    const bool good = !ferror(f);
    return fclose(f) == 0 && good;
}

#endif
