/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How an output file gets its name and its permissions, where system calls fail or are interrupted, or the process is
 * killed between them. The functions below take the place of the C library's in the whole program. */
#define _GNU_SOURCE
#include "tests/util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/output/output.h"
#include "tools/tool.h"

/* ---- System calls that can be made to fail ---- */

static struct {
    int rename_new, link; /* errno of renameat2 with flags, of linkat; 0: works */
    int chown_group, chown_owner, set_acl;
    int interrupted; /* fsync and ftruncate fail with EINTR that many times */
    int die_at;      /* SIGKILL before that call, counted from 1; 0: never */
    int calls, synced;
    mode_t widest; /* of the modes that files had when they were changed */
} hook;

int calls_until_failure = -1, calls_until_kill = -1;

static void call(void)
{
    if (++hook.calls == hook.die_at || (calls_until_kill >= 0 && calls_until_kill-- == 0))
        raise(SIGKILL);
}

/* Whether this call is to fail. */
static int fails(void)
{
    return calls_until_failure >= 0 && calls_until_failure-- == 0;
}

static int failed(int why)
{
    errno = why;
    return -1;
}

static int open_at(int dir, const char *path, int flags, va_list *rest)
{
    const mode_t mode = flags & O_CREAT ? va_arg(*rest, mode_t) : 0;
    call();
    return fails() ? failed(EIO) : (int)syscall(SYS_openat, dir, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const int fd = open_at(dir, path, flags, &rest);
    va_end(rest);
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const int fd = open_at(AT_FDCWD, path, flags, &rest);
    va_end(rest);
    return fd;
}

int renameat2(int from, const char *a, int to, const char *b, unsigned flags)
{
    call();
    return flags && hook.rename_new ? failed(hook.rename_new) : (int)syscall(SYS_renameat2, from, a, to, b, flags);
}

int renameat(int from, const char *a, int to, const char *b)
{
    call();
    return fails() ? failed(EIO) : (int)syscall(SYS_renameat2, from, a, to, b, 0);
}

int linkat(int from, const char *a, int to, const char *b, int flags)
{
    call();
    return hook.link ? failed(hook.link) : (int)syscall(SYS_linkat, from, a, to, b, flags);
}

int unlinkat(int dir, const char *name, int flags)
{
    call();
    return fails() ? failed(EIO) : (int)syscall(SYS_unlinkat, dir, name, flags);
}

int fsync(int fd)
{
    call();
    if (hook.interrupted) {
        hook.interrupted--;
        return failed(EINTR);
    }
    if (fails())
        return failed(EIO);
    hook.synced++;
    return (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t bytes)
{
    if (hook.interrupted) {
        hook.interrupted--;
        return failed(EINTR);
    }
    return (int)syscall(SYS_ftruncate, fd, bytes); /* off_t is of one register: these tests run on 64-bit machines */
}

static void note_mode(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0)
        hook.widest |= st.st_mode & 0777;
}

int fchmod(int fd, mode_t mode)
{
    note_mode(fd);
    return (int)syscall(SYS_fchmod, fd, mode);
}

int fchown(int fd, uid_t uid, gid_t gid)
{
    note_mode(fd);
    int why = uid != (uid_t)-1 ? hook.chown_owner : hook.chown_group;
    return why ? failed(why) : fchownat(fd, "", uid, gid, AT_EMPTY_PATH);
}

int fsetxattr(int fd, const char *name, const void *value, size_t len, int flags)
{
    note_mode(fd);
    return hook.set_acl ? failed(hook.set_acl) : (int)syscall(SYS_fsetxattr, fd, name, value, len, flags);
}

TestSuite(file_commit, .init = home_enter, .fini = home_leave);

/* The text of the file, "(none)" if there is no file. */
static const char *text_of(const char *path)
{
    static char have[64];
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return "(none)";
    ssize_t n = read(fd, have, sizeof have - 1);
    cr_assert_geq(n, 0);
    have[n] = 0;
    close(fd);
    return have;
}

static struct stat status_of(const char *path)
{
    struct stat st;
    cr_assert_eq(lstat(path, &st), 0, "%s: %s", path, strerror(errno));
    return st;
}

static void expect_mode(const char *path, mode_t mode)
{
    mode_t is = status_of(path).st_mode & 07777;
    cr_assert_eq(is, mode, "%s: mode %o, not %o", path, is, mode);
}

/* ---- Getting the name ---- */

/* What file systems may lack: the rename that replaces nothing, links. */
static const struct {
    int rename_new, link;
} systems[] = {{0, 0}, {EINVAL, 0}, {ENOSYS, EPERM}, {EINVAL, EPERM}, {EPERM, EOPNOTSUPP}, {EINVAL, EMLINK}};
enum { SYSTEMS = sizeof systems / sizeof *systems };

static void use_system(int i)
{
    memset(&hook, 0, sizeof hook);
    hook.rename_new = systems[i].rename_new;
    hook.link = systems[i].link;
}

static enum pici_status write_out(int force)
{
    struct pici_outfile *o;
    enum pici_status s = pici_outfile_open(&o, "out", force);
    if (s)
        return s;
    if (pici_outfile_write(o, "whole", 5)) {
        pici_outfile_abort(o);
        return PICI_E_IO;
    }
    return pici_outfile_commit(o);
}

Test(file_commit, on_any_file_system)
{
    for (int i = 0; i < SYSTEMS; i++)
        for (int force = 0; force < 2; force++) {
            use_system(i);
            cr_assert_eq(write_out(force), PICI_OK, "%d: %s", i, strerror(errno));
            cr_assert_str_eq(text_of("out"), "whole");
            expect_mode("out", 0644);
            cr_assert_eq(unlink("out"), 0);
        }
}

/* What has appeared meanwhile is not replaced. */
Test(file_commit, appeared_meanwhile)
{
    for (int i = 0; i < SYSTEMS; i++)
        for (int dangling = 0; dangling < 2; dangling++) {
            struct pici_outfile *o;
            use_system(i);
            cr_assert_eq(pici_outfile_open(&o, "out", 0), PICI_OK);
            if (dangling)
                cr_assert_eq(symlink("nowhere", "out"), 0);
            else
                make_file("out", "theirs", 0600);
            cr_assert_eq(pici_outfile_commit(o), PICI_E_IO);
            cr_assert_eq(errno, EEXIST, "%d: %s", i, strerror(errno));
            cr_assert_str_eq(text_of("out"), dangling ? "(none)" : "theirs");
            cr_assert_eq(unlink("out"), 0);
        }
}

/* Killed before each of the system calls: there is no such file, or all of it. */
Test(file_commit, killed_anywhere)
{
    for (int i = 0; i < SYSTEMS; i++) {
        int whole = 0, none = 0, status = 0;
        for (int at = 1; at < 20; at++) {
            pid_t child = fork();
            if (child == 0) {
                use_system(i);
                hook.die_at = at;
                _exit(write_out(0) != PICI_OK);
            }
            cr_assert_gt(child, 0);
            cr_assert_eq(waitpid(child, &status, 0), child);
            const char *text = text_of("out");
            cr_assert(strcmp(text, "whole") == 0 || strcmp(text, "(none)") == 0,
                      "system %d, killed before call %d: '%s'", i, at, text);
            *(strcmp(text, "whole") == 0 ? &whole : &none) += 1;
            cr_assert_eq(system("rm -f out .pici-*"), 0);
            if (WIFEXITED(status))
                break;
        }
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "system %d: status %x", i, status);
        cr_assert(whole > 0 && none > 0, "system %d: %d whole, %d none", i, whole, none);
    }
}

/* A failed fsync of the file or rename leaves the old file; one of the folder, the new one. */
Test(file_commit, failed_calls)
{
    static const enum pici_status expected[] = {PICI_E_IO, PICI_E_IO, PICI_E_SYNC, PICI_OK};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct pici_outfile *o;
        make_file("out", "old", 0644);
        cr_assert_eq(pici_outfile_open(&o, "out", 1), PICI_OK);
        cr_assert_eq(pici_outfile_write(o, "new", 3), 0);
        calls_until_failure = (int)i;
        errno = 0;
        const enum pici_status s = pici_outfile_commit(o);
        calls_until_failure = -1;
        cr_assert_eq(s, expected[i], "call %zu", i);
        cr_assert(s == PICI_OK || errno == EIO);
        expect_file("out", expected[i] == PICI_E_IO ? "old" : "new");
        cr_assert_eq(entries_of("."), 1);
    }
}

Test(file_commit, interrupted_fsync)
{
    for (int n = 0; n < 4; n++) {
        memset(&hook, 0, sizeof hook);
        hook.interrupted = n;
        cr_assert_eq(write_out(1), PICI_OK, "%d: %s", n, strerror(errno));
        cr_assert_eq(hook.interrupted, 0);
        cr_assert_eq(hook.synced, 2); /* the file and the directory */
        cr_assert_str_eq(text_of("out"), "whole");
    }
}

/* The tool's output with holes, whose length is set three times and more. */
Test(file_commit, interrupted_ftruncate)
{
    static const char zeros[1 << 18];
    for (int n = 0; n < 4; n++)
        for (int when = 0; when < 3; when++) {
            struct output out;
            char name[16];
            snprintf(name, sizeof name, "out%d%d", n, when); /* one run does not write an output twice */
            memset(&hook, 0, sizeof hook);
            cr_assert_eq(output_open(&out, name, NULL, true), TOOL_OK);
            hook.interrupted = when == 0 ? n : 0;
            output_sparse(&out);
            hook.interrupted += when == 1 ? n : 0;
            cr_assert_eq(output_claim(&out, "in", sizeof zeros + 3), TOOL_OK);
            cr_assert_eq(output_write(&out, "abc", 3), TOOL_OK);
            cr_assert_eq(output_write(&out, zeros, sizeof zeros), TOOL_OK);
            hook.interrupted += when == 2 ? n : 0;
            cr_assert_eq(output_commit(&out), TOOL_OK);
            cr_assert_eq(hook.interrupted, 0);
            cr_assert_eq(status_of(name).st_size, sizeof zeros + 3);
            cr_assert_str_eq(text_of(name), "abc");
        }
}

/* ---- Permissions ---- */

/* Make "new" from the files (b may be null), and return its status. */
static struct stat make_from(const char *a, const char *b, int force)
{
    struct pici_outfile *o;
    int from[2] = {open(a, O_RDONLY), b ? open(b, O_RDONLY) : -1};
    hook.widest = 0;
    enum pici_status s = pici_outfile_open_like(&o, "new", force, from, b ? 2 : 1);
    cr_assert_eq(s, PICI_OK, "%s", strerror(errno));
    struct stat st;
    cr_assert_eq(fstat(pici_outfile_fd(o), &st), 0);
    cr_assert_eq(hook.widest & ~(0600u | st.st_mode), 0, "the file was of mode %o, and is of %o", hook.widest,
                 st.st_mode);
    cr_assert_eq(pici_outfile_write(o, "text", 4), 0);
    cr_assert_eq(pici_outfile_commit(o), PICI_OK);
    close(from[0]);
    if (b)
        close(from[1]);
    struct stat named = status_of("new");
    cr_assert(named.st_mode == st.st_mode && named.st_uid == st.st_uid && named.st_gid == st.st_gid);
    cr_assert_str_eq(text_of("new"), "text");
    if (!force)
        cr_assert_eq(unlink("new"), 0);
    return st;
}

static void expect_mode_from(const char *a, const char *b, mode_t mode)
{
    mode_t is = make_from(a, b, 0).st_mode & 07777;
    cr_assert_eq(is, mode, "mode %o, not %o", is, mode);
}

Test(file_commit, mode_of_the_input)
{
    static const mode_t modes[] = {0600, 0644, 0640, 0666, 0400, 0755, 0604};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        make_file("in", "", modes[i]);
        expect_mode_from("in", NULL, modes[i]);
        cr_assert_eq(unlink("in"), 0);
    }
    make_file("in", "", 06755);
    expect_mode_from("in", NULL, 0755);
    make_file("other", "", 0660);
    expect_mode_from("in", "other", 0640);
    make_file("other", "", 0600);
    expect_mode_from("other", "in", 0600);
    expect_mode_from("/dev/null", NULL, 0644); /* which is no regular file */
    expect_mode_from("/dev/null", "other", 0600);

    make_file("new", "old", 0640); /* what is replaced keeps its own */
    make_from("other", NULL, 1);
    expect_mode("new", 0640);
    struct pici_outfile *o;
    cr_assert_eq(pici_outfile_open_like(&o, "x", 0, NULL, 1), PICI_E_ARG);
    cr_assert_null(o);
}

/* Someone else's file; only root can make one. */
static int make_theirs(const char *path, mode_t mode)
{
    make_file(path, "", mode);
    if (chown(path, 12345, 23456) != 0) {
        printf("skip: owner and group of files: only root may set them\n");
        return 0;
    }
    return chmod(path, mode) == 0;
}

Test(file_commit, owner_and_group)
{
    if (!make_theirs("in", 0640))
        return;
    struct stat st = make_from("in", NULL, 0);
    cr_assert(st.st_uid == 12345 && st.st_gid == 23456 && (st.st_mode & 07777) == 0640);

    make_theirs("new", 0664); /* and when it is replaced */
    make_file("in", "", 0600);
    make_from("in", NULL, 1);
    st = status_of("new");
    cr_assert(st.st_uid == 12345 && st.st_gid == 23456 && (st.st_mode & 07777) == 0664);
    cr_assert_eq(unlink("new"), 0);

    make_theirs("in", 0640); /* by who may give nothing away */
    hook.chown_owner = hook.chown_group = EPERM;
    expect_mode_from("in", NULL, 0600);
    make_theirs("in", 0664);
    expect_mode_from("in", NULL, 0644);
    make_theirs("in", 0604);
    expect_mode_from("in", NULL, 0600);
    hook.chown_group = 0; /* but is of the group */
    make_theirs("in", 0640);
    st = make_from("in", NULL, 0);
    cr_assert(st.st_uid == getuid() && st.st_gid == 23456 && (st.st_mode & 07777) == 0640);
    hook.chown_owner = 0;

    make_file("other", "", 0664); /* of several owners and groups */
    make_theirs("in", 0664);
    st = make_from("in", "other", 0);
    cr_assert(st.st_uid == getuid() && st.st_gid == getgid() && (st.st_mode & 07777) == 0644);
}

/* An access control list: user 12345 may read and write, the group nothing, in a file whose mode says 0660. */
static const unsigned char acl[] = {
    2,    0, 0, 0,                         /* version */
    0x01, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, /* the owner */
    0x02, 0, 6, 0, 0x39, 0x30, 0,    0,    /* user 12345 */
    0x04, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, /* the group */
    0x10, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, /* the mask */
    0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff  /* others */
};

static ssize_t acl_of(const char *path, unsigned char have[256])
{
    return getxattr(path, "system.posix_acl_access", have, 256);
}

Test(file_commit, access_control_list)
{
    unsigned char have[256];
    make_file("in", "", 0600);
    if (setxattr("in", "system.posix_acl_access", acl, sizeof acl, 0) != 0) {
        printf("skip: access control lists: this file system has none\n");
        return;
    }
    expect_mode("in", 0660);
    make_file("new", "old", 0600);
    cr_assert_eq(unlink("new"), 0);
    struct pici_outfile *o;
    int from = open("in", O_RDONLY);
    cr_assert_eq(pici_outfile_open_like(&o, "new", 0, &from, 1), PICI_OK);
    cr_assert_eq(pici_outfile_commit(o), PICI_OK);
    cr_assert(acl_of("new", have) == sizeof acl && memcmp(have, acl, sizeof acl) == 0);
    expect_mode("new", 0660);
    make_from("/dev/null", NULL, 1); /* replaced */
    cr_assert(acl_of("new", have) == sizeof acl && memcmp(have, acl, sizeof acl) == 0);
    cr_assert_eq(unlink("new"), 0);

    make_file("other", "", 0664); /* with another file, or where it cannot be set: the owner alone */
    expect_mode_from("in", "other", 0600);
    expect_mode_from("other", "in", 0600);
    hook.set_acl = ENOTSUP;
    expect_mode_from("in", NULL, 0600);
    close(from);
}
