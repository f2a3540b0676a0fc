/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What memory can do: memcpy, and the pass over memory that each operation of the codec cannot be faster than. */
#ifndef PICI_BENCH_YARDSTICK_H
#define PICI_BENCH_YARDSTICK_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum yardstick {
    MEMCPY,
    READ,       /* load every byte */
    WRITE,      /* store every byte, past the cache where the CPU has such stores */
    WRITE_ZERO, /* the same with zeros, which some machines store twice as fast */
    ZERO_PAGES, /* the same, and each page is asked for some pages before, so that its address is translated in time */
    MEMSET,     /* libc's, to zero: what can be had without such stores */
    REWRITE,    /* load, change and store every byte in place */
    PLACES,     /* change elements at known places, which are asked for in time; of who has the places */
    YARDSTICKS
};

static inline const char *yardstick_name(enum yardstick y)
{
#if defined(__x86_64__)
    static const char *const name[] = {"memcpy",          "pure read", "non-temporal fill", "non-temporal zeros",
                                       "zeros, by pages", "memset",    "rewrite in place",  "known places"};
#else
    static const char *const name[] = {"memcpy",           "pure read",       "fill",
                                       "fill with zeros",  "zeros, by pages", "memset",
                                       "rewrite in place", "known places"};
#endif
    return name[y];
}

/* GNU vectors rather than loops for the vectoriser, so that every compiler makes the same loop of them at any -O. */
typedef uint64_t vec16 __attribute__((vector_size(16), may_alias));
typedef uint64_t vec32 __attribute__((vector_size(32), may_alias));

#define READ_BODY(VEC)                                                                                                 \
    VEC a = {0}, b = {0}, c = {0}, d = {0};                                                                            \
    for (; p + 4 <= end; p += 4) {                                                                                     \
        a |= p[0];                                                                                                     \
        b |= p[1];                                                                                                     \
        c |= p[2];                                                                                                     \
        d |= p[3];                                                                                                     \
    }                                                                                                                  \
    a |= b | c | d;                                                                                                    \
    return a[0] | a[1]

#define REWRITE_BODY(VEC)                                                                                              \
    for (; p + 4 <= end; p += 4) {                                                                                     \
        const VEC a = p[0] + 1, b = p[1] + 1, c = p[2] + 1, d = p[3] + 1;                                              \
        p[0] = a;                                                                                                      \
        p[1] = b;                                                                                                      \
        p[2] = c;                                                                                                      \
        p[3] = d;                                                                                                      \
    }

static inline uint64_t read_vec16(const vec16 *p, const vec16 *end)
{
    READ_BODY(vec16);
}

static inline void rewrite_vec16(vec16 *p, const vec16 *end)
{
    REWRITE_BODY(vec16)
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static inline uint64_t read_avx2(const vec32 *p, const vec32 *end)
{
    READ_BODY(vec32);
}

__attribute__((target("avx2"))) static inline void rewrite_avx2(vec32 *p, const vec32 *end)
{
    REWRITE_BODY(vec32)
}

/* At the begin of a page, ask for the page four further on. */
static inline void ask_page(const uint8_t *p)
{
    if ((uintptr_t)p % 4096 == 0)
        __builtin_prefetch((const void *)((uintptr_t)p + 4 * 4096), 0, 2);
}

__attribute__((target("avx2"))) static inline void write_avx2(uint8_t *p, const uint8_t *end, char byte, int pages)
{
    const __m256i v = _mm256_set1_epi8(byte);
    for (; p < end; p += 64) {
        if (pages)
            ask_page(p);
        _mm256_stream_si256((__m256i *)p, v);
        _mm256_stream_si256((__m256i *)(p + 32), v);
    }
    _mm_sfence();
}

static inline void write_sse2(uint8_t *p, const uint8_t *end, char byte, int pages)
{
    const __m128i v = _mm_set1_epi8(byte);
    for (; p < end; p += 16) {
        if (pages)
            ask_page(p);
        _mm_stream_si128((__m128i *)p, v);
    }
    _mm_sfence();
}
#endif

/* Makes the compiler believe that x is needed. */
static inline void keep(uint64_t x)
{
    __asm__ volatile("" : : "r"((uint32_t)x), "r"((uint32_t)(x >> 32)));
}

/* One pass; dst and src are 64-byte aligned, and the last bytes % 128 may be left out. */
static inline void yardstick(enum yardstick y, uint8_t *dst, const uint8_t *src, size_t bytes)
{
    const size_t most = bytes / 128 * 128;
    const char byte = y == WRITE ? 0x55 : 0;
#if defined(__x86_64__)
    const int avx2 = __builtin_cpu_supports("avx2");
#endif
    switch (y) {
    case READ:
#if defined(__x86_64__)
        if (avx2) {
            keep(read_avx2((const vec32 *)src, (const vec32 *)(src + most)));
            break;
        }
#endif
        keep(read_vec16((const vec16 *)src, (const vec16 *)(src + most)));
        break;
    case WRITE:
    case WRITE_ZERO:
    case ZERO_PAGES:
#if defined(__x86_64__)
        if (avx2)
            write_avx2(dst, dst + most, byte, y == ZERO_PAGES);
        else
            write_sse2(dst, dst + most, byte, y == ZERO_PAGES);
#else
        memset(dst, byte, most);
#endif
        break;
    case MEMSET: memset(dst, 0, bytes); break;
    case REWRITE:
#if defined(__x86_64__)
        if (avx2) {
            rewrite_avx2((vec32 *)dst, (const vec32 *)(dst + most));
            break;
        }
#endif
        rewrite_vec16((vec16 *)dst, (const vec16 *)(dst + most));
        break;
    default: memcpy(dst, src, bytes);
    }
}

#endif
