/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Output appears whole or not at all. */
#define _XOPEN_SOURCE 700
#include "tests/util/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(file_outfile, .init = home_enter, .fini = home_leave);

static mode_t mode_of(const char *path)
{
    struct stat st;
    cr_assert_eq(lstat(path, &st), 0);
    return st.st_mode;
}

static struct pici_outfile *begin(const char *path, int force, const char *text)
{
    struct pici_outfile *o;
    enum pici_status s = pici_outfile_open(&o, path, force);
    cr_assert_eq(s, PICI_OK, "%s: %s", path, strerror(errno));
    cr_assert_eq(pici_outfile_write(o, text, strlen(text)), 0);
    return o;
}

static void expect_refused(const char *path, int force, int why)
{
    struct pici_outfile *o;
    errno = 0;
    cr_assert_eq(pici_outfile_open(&o, path, force), PICI_E_IO, "%s", path);
    cr_assert_eq(errno, why, "%s: %s", path, strerror(errno));
    cr_assert_null(o);
}

Test(file_outfile, appears_at_the_commit)
{
    for (int force = 0; force < 2; force++) {
        struct pici_outfile *o = begin("out", force, "whole");
        cr_assert_eq(access("out", F_OK), -1);
        cr_assert_eq(entries_of("."), 1);
        cr_assert_eq(write(pici_outfile_fd(o), "!", 1), 1);
        cr_assert_eq(pici_outfile_commit(o), PICI_OK);
        expect_file("out", "whole!");
        cr_assert_eq(mode_of("out"), S_IFREG | 0644);
        cr_assert_eq(entries_of("."), 1);
        cr_assert_eq(unlink("out"), 0);
    }
}

Test(file_outfile, abort_leaves_nothing)
{
    struct pici_outfile *o = begin("out", 0, "part");
    pici_outfile_abort(o);
    cr_assert_eq(entries_of("."), 0);
    make_file("out", "old", 0644);
    o = begin("out", 1, "part");
    pici_outfile_abort(o);
    expect_file("out", "old");
    cr_assert_eq(entries_of("."), 1);
    pici_outfile_abort(NULL);
}

Test(file_outfile, existing_is_refused)
{
    make_file("out", "old", 0644);
    expect_refused("out", 0, EEXIST);
    cr_assert_eq(symlink("nowhere", "dangling"), 0);
    expect_refused("dangling", 0, EEXIST);
    cr_assert_eq(symlink("out", "link"), 0);
    expect_refused("link", 0, EEXIST);
    cr_assert_eq(entries_of("."), 3);

    struct pici_outfile *o = begin("later", 0, "new"); /* it appears while we write */
    make_file("later", "theirs", 0600);
    cr_assert_eq(pici_outfile_commit(o), PICI_E_IO);
    cr_assert_eq(errno, EEXIST);
    expect_file("later", "theirs");
    cr_assert_eq(entries_of("."), 4);
}

Test(file_outfile, force_replaces)
{
    make_file("out", "old", 0640);
    struct pici_outfile *o = begin("out", 1, "new");
    expect_file("out", "old");
    cr_assert_eq(pici_outfile_commit(o), PICI_OK);
    expect_file("out", "new");
    cr_assert_eq(mode_of("out"), S_IFREG | 0640);

    cr_assert_eq(mkdir("dir", 0755), 0);
    cr_assert_eq(symlink("../out", "dir/link"), 0); /* itself, with the mode of what it points at */
    cr_assert_eq(pici_outfile_commit(begin("dir/link", 1, "newer")), PICI_OK);
    expect_file("out", "new");
    expect_file("dir/link", "newer");
    cr_assert_eq(mode_of("dir/link"), S_IFREG | 0640);
    cr_assert_eq(entries_of("dir"), 1);

    cr_assert_eq(symlink("nowhere", "dangling"), 0); /* itself */
    cr_assert_eq(pici_outfile_commit(begin("dangling", 1, "here")), PICI_OK);
    cr_assert(S_ISREG(mode_of("dangling")));
    expect_file("dangling", "here");
    cr_assert_eq(access("nowhere", F_OK), -1);
    cr_assert_eq(entries_of("."), 3);
}

/* A name of a descriptor is no file to replace: what is there already stays. */
Test(file_outfile, descriptors)
{
    char path[64];
    make_file("log", "first ", 0644);
    const int fd = open("log", O_WRONLY | O_APPEND);
    cr_assert_geq(fd, 0);
    const char *const folders[] = {"/dev/fd/%d", "/proc/self/fd/%d"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, folders[i], fd);
        struct pici_outfile *o = begin(path, i, "more ");
        cr_assert(pici_outfile_is_stream(o));
        cr_assert_eq(pici_outfile_commit(o), PICI_OK);
    }
    cr_assert_eq(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    struct pici_outfile *o = begin("/dev/stdout", 1, "last");
    pici_outfile_abort(o);
    cr_assert_eq(symlink("/dev/stdout", "link"), 0);
    cr_assert_eq(pici_outfile_commit(begin("link", 1, ", end")), PICI_OK);
    close(fd);
    expect_file("log", "first more more last, end");
    cr_assert_eq(entries_of("."), 2);
    expect_refused("/dev/fd/999", 1, EBADF);
    o = begin("file", 0, "");
    cr_assert(!pici_outfile_is_stream(o));
    pici_outfile_abort(o);
}

Test(file_outfile, no_such_places)
{
    cr_assert_eq(mkdir("dir", 0755), 0);
    expect_refused("dir", 0, EISDIR);
    expect_refused("dir", 1, EISDIR);
    expect_refused("dir/", 1, EISDIR);
    expect_refused(".", 1, EISDIR);
    expect_refused("none/out", 0, ENOENT);
    expect_refused("none/", 0, EISDIR);
    make_file("file", "", 0644);
    expect_refused("file/out", 1, ENOTDIR);
    struct pici_outfile *o;
    cr_assert_eq(pici_outfile_open(NULL, "out", 0), PICI_E_ARG);
    cr_assert_eq(pici_outfile_open(&o, NULL, 0), PICI_E_ARG);
    cr_assert_eq(pici_outfile_open(&o, "", 0), PICI_E_ARG);
    cr_assert_eq(pici_outfile_commit(NULL), PICI_E_ARG);
    cr_assert_eq(entries_of("."), 2);
}

/* Devices and FIFOs are written as they are, and stay what they are. */
Test(file_outfile, special_files)
{
    for (int force = 0; force < 2; force++) {
        cr_assert_eq(pici_outfile_commit(begin("/dev/null", force, "gone")), PICI_OK);
        cr_assert(S_ISCHR(mode_of("/dev/null")));
        pici_outfile_abort(begin("/dev/null", force, "gone"));
        cr_assert(S_ISCHR(mode_of("/dev/null")));
    }
    char have[8] = "";
    cr_assert_eq(mkfifo("fifo", 0600), 0);
    int in = open("fifo", O_RDONLY | O_NONBLOCK);
    cr_assert_eq(pici_outfile_commit(begin("fifo", 0, "through")), PICI_OK);
    cr_assert_eq(read(in, have, sizeof have), 7);
    cr_assert_str_eq(have, "through");
    close(in);
    cr_assert(S_ISFIFO(mode_of("fifo")));
    cr_assert_eq(entries_of("."), 1);
}

/* The directory is the one that it was, wherever the process has gone. */
Test(file_outfile, directory_is_held)
{
    cr_assert(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0);
    struct pici_outfile *o = begin("a/out", 0, "text"), *gone = begin("a/gone", 0, "text");
    cr_assert_eq(rename("a", "c"), 0);
    cr_assert_eq(chdir("b"), 0);
    cr_assert_eq(pici_outfile_commit(o), PICI_OK);
    pici_outfile_abort(gone);
    expect_file("../c/out", "text");
    cr_assert_eq(entries_of("../c"), 1);
}

/* A disk that is full in the middle. */
Test(file_outfile, write_error)
{
    struct rlimit l;
    char big[1000];
    memset(big, 'x', sizeof big);
    make_file("out", "old", 0644);
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &l), 0);
    rlim_t before = l.rlim_cur;
    l.rlim_cur = 500;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &l), 0);
    struct pici_outfile *o;
    cr_assert_eq(pici_outfile_open(&o, "out", 1), PICI_OK);
    cr_assert_eq(pici_outfile_write(o, big, sizeof big), EFBIG);
    pici_outfile_abort(o);
    l.rlim_cur = before;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &l), 0);
    expect_file("out", "old");
    cr_assert_eq(entries_of("."), 1);
}

/* Many at once in a directory do not meet. */
Test(file_outfile, several_at_once)
{
    struct pici_outfile *o[20];
    char name[8];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "%d", i);
        o[i] = begin(name, i % 2, name);
    }
    cr_assert_eq(entries_of("."), 20);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(pici_outfile_commit(o[i]), PICI_OK);
    cr_assert_eq(entries_of("."), 20);
    expect_file("0", "0");
    expect_file("19", "19");
}

static struct pici_outfile *volatile current;

static void on_signal(int sig)
{
    if (current)
        pici_outfile_unlink(current);
    _exit(128 + sig);
}

Test(file_outfile, signal_leaves_nothing)
{
    int ready[2], status;
    make_file("out", "old", 0644);
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        sigset_t term, old;
        sigemptyset(&term);
        sigaddset(&term, SIGTERM);
        signal(SIGTERM, on_signal);
        sigprocmask(SIG_BLOCK, &term, &old);
        struct pici_outfile *o;
        if (pici_outfile_open(&o, "out", 1) || pici_outfile_write(o, "part", 4) || write(ready[1], "1", 1) != 1)
            _exit(1);
        current = o;
        sigprocmask(SIG_SETMASK, &old, NULL);
        for (;;)
            pause();
    }
    char c;
    cr_assert_gt(child, 0);
    cr_assert_eq(read(ready[0], &c, 1), 1);
    cr_assert_eq(entries_of("."), 2);
    cr_assert_eq(kill(child, SIGTERM), 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM);
    cr_assert_eq(entries_of("."), 1);
    expect_file("out", "old");
}

/* A writer that writes to it. */
Test(file_outfile, takes_a_pici_file)
{
    struct rng rng = {1};
    struct item it;
    struct pici_outfile *o;
    struct pici_writer *w;
    struct pici_reader *r;
    float data[1000];
    item_init(&it, "w", PICI_F32, PATTERN_30, &rng, DIMS(1000));
    it.t.shape = it.shape;
    cr_assert_eq(pici_outfile_open(&o, "w.pici", 0), PICI_OK);
    enum pici_status s = pici_writer_open(&w, pici_outfile_write, o, NULL, 0, NULL);
    WRITE_OK(w, s);
    WRITE_OK(w, pici_writer_tensor(w, &it.t));
    WRITE_OK(w, pici_writer_data(w, it.data, it.bytes));
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);
    cr_assert_eq(pici_outfile_commit(o), PICI_OK);
    s = pici_reader_open_path(&r, "w.pici", NULL);
    READ_OK(r, s);
    READ_OK(r, pici_reader_read_range(r, 0, 0, 1000, data));
    cr_assert(memcmp(data, it.data, it.bytes) == 0);
    pici_reader_close(r);
    item_free(&it);
}
