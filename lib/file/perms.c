/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Owner, group and permissions for a new file, taken from other files. The set-user-ID and set-group-ID bits are never
 * taken: they concern programs. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "file/perms.h"

enum { OWNER = 0700, GROUP = 0070, OTHERS = 0007 };

/* ---- Access control lists: Linux keeps one as an extended attribute ---- */

#ifdef __linux__

#include <sys/xattr.h>

static const char acl_name[] = "system.posix_acl_access";

static ssize_t acl_get(const char *path, int fd, void *p, size_t cap)
{
    return path ? getxattr(path, acl_name, p, cap) : fgetxattr(fd, acl_name, p, cap);
}

/* The list of a file, given by path or else by descriptor. Where it cannot be read, the owner alone is permitted. */
static int acl_read(struct pici_perms *to, const char *path, int fd)
{
    for (;;) {
        ssize_t len = acl_get(path, fd, NULL, 0);
        if (len > 0) {
            to->acl = malloc((size_t)len);
            if (!to->acl)
                return ENOMEM;
            len = acl_get(path, fd, to->acl, (size_t)len);
            if (len > 0) {
                to->acl_len = (size_t)len;
                return 0;
            }
            const int e = errno;
            pici_perms_free(to);
            errno = e;
        }
        if (len == 0 || errno == ENODATA || errno == ENOTSUP || errno == ENOSYS)
            return 0;          /* there is none, or the file system has no lists */
        if (errno != ERANGE) { /* ERANGE: it has grown between the two calls */
            to->mode &= OWNER;
            return 0;
        }
    }
}

static int acl_write(int fd, const void *acl, size_t len)
{
    return fsetxattr(fd, acl_name, acl, len, 0);
}

#else

static int acl_read(struct pici_perms *to, const char *path, int fd)
{
    (void)to;
    (void)path;
    (void)fd;
    return 0;
}

static int acl_write(int fd, const void *acl, size_t len)
{
    (void)fd;
    (void)acl;
    (void)len;
    return -1;
}

#endif

/* ---- Taking them ---- */

static struct pici_perms of_stat(const struct stat *st)
{
    return (struct pici_perms){
        .files = 1, .mode = st->st_mode & 0777, .uid = st->st_uid, .gid = st->st_gid, .same_uid = 1, .same_gid = 1};
}

int pici_perms_of_path(struct pici_perms *to, const char *path, const struct stat *st)
{
    *to = of_stat(st);
    return acl_read(to, path, -1);
}

/* Access control lists are not merged: the owner alone remains. */
void pici_perms_narrow(struct pici_perms *to, const struct pici_perms *by)
{
    to->files += by->files;
    to->mode &= by->mode;
    to->same_uid = to->same_uid && by->same_uid && to->uid == by->uid;
    to->same_gid = to->same_gid && by->same_gid && to->gid == by->gid;
    if (to->acl || by->acl)
        to->mode &= OWNER;
    free(to->acl);
    to->acl = NULL;
}

int pici_perms_add(struct pici_perms *to, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    struct pici_perms one = of_stat(&st);
    const int e = acl_read(&one, NULL, fd);
    if (e)
        return e;
    if (to->files) {
        pici_perms_narrow(to, &one);
        pici_perms_free(&one);
    } else {
        *to = one;
    }
    return 0;
}

void pici_perms_free(struct pici_perms *p)
{
    free(p->acl);
    p->acl = NULL;
}

/* ---- Giving them ---- */

/* What both group and others may do, for both. */
static mode_t common(mode_t mode)
{
    mode_t both = mode & mode >> 3 & OTHERS;
    return (mode & OWNER) | both << 3 | both;
}

/* The error of a file system without permissions, or without these. */
static int no_such_thing(int e)
{
    return e == EPERM || e == ENOTSUP || e == EOPNOTSUPP || e == ENOSYS;
}

int pici_perms_set(const struct pici_perms *p, int fd)
{
    struct stat st;
    mode_t mode = p->mode;
    int listed = 0;
    if (fstat(fd, &st) != 0)
        return errno;
    int group = p->same_gid && (st.st_gid == p->gid || fchown(fd, (uid_t)-1, p->gid) == 0);
    if (p->acl) /* sets the mode too */
        listed = group && acl_write(fd, p->acl, p->acl_len) == 0;
    if (p->acl && !listed)
        mode &= OWNER; /* with a list, the mode's group bits are not the group's */
    else if (!group)
        mode = common(mode);
    if (!listed && fchmod(fd, mode) != 0 && !no_such_thing(errno))
        return errno;
    /* The owner last: who has given the file away may not change its mode any more. Only privileged processes may. */
    if (p->same_uid && st.st_uid != p->uid)
        (void)!fchown(fd, p->uid, (gid_t)-1);
    return 0;
}
