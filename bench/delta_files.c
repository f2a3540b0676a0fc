/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool diff and apply, end to end, beside reading the same files and copying one of them. Files are in the page
 * cache: a disk only adds waiting time.
 *     delta_files PICITOOL DIR [MIB [PERCENT [REPETITIONS]]]
 * bf16, MIB a file (1024), PERCENT of the elements changed (1). Prints medians. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

enum { PIECE = 4 << 20, ELEMENTS = PIECE / 2, ROWS = 6, MOST = 100 };

static const char *const row_name[ROWS] = {"read one", "read both", "copy", "diff", "apply", "apply --in-place"};

static void path_of(char path[4096], const char *dir, const char *name)
{
    if (snprintf(path, 4096, "%s/%s", dir, name) >= 4096)
        die("a path that is too long");
}

static void make(const char *dir, size_t bytes, double density)
{
    uint8_t *const base = buffer(PIECE, 0), *const other = buffer(PIECE, 0);
    char path[4096];
    path_of(path, dir, "base.raw");
    FILE *const a = fopen(path, "wb");
    path_of(path, dir, "new.raw");
    FILE *const b = fopen(path, "wb");
    fill(base, ELEMENTS, PICI_BF16, 1, UNIFORM);
    fill(other, ELEMENTS, PICI_BF16, density, UNIFORM);
    for (size_t i = 0; i < PIECE; i++)
        other[i] ^= base[i];
    for (size_t at = 0; at < bytes; at += PIECE) /* repeated, which no program looks for */
        if (!a || !b || fwrite(base, PIECE, 1, a) != 1 || fwrite(other, PIECE, 1, b) != 1)
            die("cannot write the files");
    if (fclose(a) || fclose(b))
        die("cannot write the files");
    free(base);
    free(other);
}

static void read_file(const char *dir, const char *name, int to)
{
    static uint8_t piece[PIECE];
    char path[4096];
    ssize_t k;
    path_of(path, dir, name);
    const int fd = open(path, O_RDONLY);
    while ((k = read(fd, piece, sizeof piece)) > 0)
        if (to >= 0 && write(to, piece, (size_t)k) != k)
            die("cannot copy");
    if (k < 0)
        die("cannot read");
    close(fd);
}

static void picitool(const char *tool, const char *dir, const char *const arguments[])
{
    const pid_t pid = fork();
    int status;
    if (pid == 0) {
        if (chdir(dir) == 0)
            execv(tool, (char *const *)arguments);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        die("picitool failed");
}

static void run(int row, const char *tool, const char *dir)
{
    char path[4096];
    if (row <= 1) {
        read_file(dir, "base.raw", -1);
        if (row == 1)
            read_file(dir, "new.raw", -1);
    } else if (row == 2) { /* synced, as picitool's output is */
        path_of(path, dir, "copy.raw");
        const int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        read_file(dir, "base.raw", to);
        if (to < 0 || fsync(to) || close(to))
            die("cannot copy");
    } else if (row == 3) {
        picitool(tool, dir,
                 (const char *const[]){tool, "diff", "--force", "--dtype", "bf16", "-o", "d.pici", "base.raw",
                                       "new.raw", NULL});
    } else if (row == 4) {
        picitool(tool, dir,
                 (const char *const[]){tool, "apply", "--force", "-o", "made.raw", "base.raw", "d.pici", NULL});
    } else { /* apply to the copy, which is the base */
        picitool(tool, dir, (const char *const[]){tool, "apply", "--in-place", "copy.raw", "d.pici", NULL});
    }
}

int main(int argc, char **argv)
{
    static const char *const files[] = {"base.raw", "new.raw", "copy.raw", "made.raw", "d.pici"};
    static double sample[ROWS][MOST];
    char tool[4096], path[4096];
    const size_t bytes = (argc > 3 ? strtoull(argv[3], NULL, 10) : 1024) << 20;
    const double percent = argc > 4 ? atof(argv[4]) : 1;
    const int reps = argc > 5 ? atoi(argv[5]) : 5;
    if (argc < 3 || bytes < PIECE || bytes % PIECE || !(percent >= 0 && percent <= 100) || reps < 1 || reps > MOST ||
        !realpath(argv[1], tool)) {
        fprintf(stderr, "usage: delta_files PICITOOL DIR [MIB [PERCENT [REPETITIONS]]]\n");
        return 2;
    }
    make(argv[2], bytes, percent / 100);
    for (int rep = 0; rep < reps; rep++)
        for (int row = 0; row < ROWS; row++) {
            const double start = seconds(CLOCK_MONOTONIC);
            run(row, tool, argv[2]);
            sample[row][rep] = seconds(CLOCK_MONOTONIC) - start;
        }
    printf("%zu MiB of bf16, %g%% changed; median of %d\n", bytes >> 20, percent, reps);
    for (int row = 0; row < ROWS; row++) {
        const double s = median(sample[row], (size_t)reps);
        printf("  %-18s %8.3f s  %6.2f GB/s\n", row_name[row], s, (double)bytes / s / 1e9);
    }
    path_of(path, argv[2], "d.pici");
    FILE *const f = fopen(path, "rb");
    if (f && fseek(f, 0, SEEK_END) == 0)
        printf("  the delta: %ld bytes, %.3f%%\n", ftell(f), 100 * (double)ftell(f) / (double)bytes);
    if (f)
        fclose(f);
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        path_of(path, argv[2], files[i]);
        unlink(path);
    }
    return fflush(stdout) || ferror(stdout);
}
