/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_digit(char character)
{
    return character >= '0' && character <= '9';
}

/* Read the digits at *text as an integer, at most `most`. Returns the number of digits. */
static int read_digits(const char **text, const char *end, int most, int *value)
{
    const char *begin = *text;
    for (*value = 0; *text < end && is_digit(**text); ++*text) {
        const int digit = **text - '0';
        *value = *value > (most - digit) / 10 ? most : *value * 10 + digit;
    }
    return (int)(*text - begin);
}

/* strtod rounds correctly, but its decimal point depends on the locale. So it gets the digits without a point, and an
 * exponent that makes up for that. */
int pici_number_read(const char *text, size_t size, double *value)
{
    enum { EXPONENT_MOST = 9999 };
    char whole[NUMBER_LONGEST + 16];
    const char *end = text + size;
    int used = 0, behind = 0, point = 0, exponent = 0, negative = 0;
    if (size > NUMBER_LONGEST)
        return 0;
    for (; text < end && (is_digit(*text) || (*text == '.' && !point)); text++) {
        point |= *text == '.';
        if (is_digit(*text)) {
            whole[used++] = *text;
            behind += point;
        }
    }
    if (!used)
        return 0;
    if (text < end) {
        if (*text != 'e' && *text != 'E')
            return 0;
        text++;
        negative = text < end && *text == '-';
        text += text < end && (*text == '-' || *text == '+');
        if (!read_digits(&text, end, EXPONENT_MOST, &exponent) || text < end)
            return 0;
    }
    snprintf(whole + used, sizeof whole - (size_t)used, "e%d", (negative ? -exponent : exponent) - behind);
    *value = strtod(whole, NULL);
    return *value <= 0x1.fffffffffffffp1023;
}

void pici_number_print(char text[NUMBER_TEXT], double value)
{
    enum { DIGITS_MOST = 17 };
    char raw[64];
    if (value < 1e15 && value == (double)(unsigned long long)value) {
        snprintf(text, NUMBER_TEXT, "%llu", (unsigned long long)value);
        return;
    }
    for (int digits = 1; digits <= DIGITS_MOST; digits++) {
        double again;
        int used = 0;
        snprintf(raw, sizeof raw, "%.*e", digits - 1, value);
        /* between the first digit and the second there is the locale's decimal point, of one byte or several */
        text[used++] = raw[0];
        const char *cursor = raw + 1;
        if (digits > 1) {
            text[used++] = '.';
            while (!is_digit(*cursor))
                cursor++;
        }
        while (*cursor && used < NUMBER_TEXT - 1)
            text[used++] = *cursor++;
        text[used] = '\0';
        if (pici_number_read(text, strlen(text), &again) && again == value)
            return;
    }
}
