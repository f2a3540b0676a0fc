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

static ssize_t acl_get(const char *path, int descriptor, void *bytes, size_t capacity)
{
    return path ? getxattr(path, acl_name, bytes, capacity) : fgetxattr(descriptor, acl_name, bytes, capacity);
}

/* Read the list of a file, given by path or else by descriptor. If it cannot be read, permit only the owner. */
static int acl_read(struct pici_perms *perms, const char *path, int descriptor)
{
    for (;;) {
        ssize_t size = acl_get(path, descriptor, NULL, 0);
        if (size > 0) {
            perms->acl = malloc((size_t)size);
            if (!perms->acl)
                return ENOMEM;
            size = acl_get(path, descriptor, perms->acl, (size_t)size);
            if (size > 0) {
                perms->acl_size = (size_t)size;
                return 0;
            }
            const int error_number = errno;
            pici_perms_free(perms);
            errno = error_number;
        }
        if (size == 0 || errno == ENODATA || errno == ENOTSUP || errno == ENOSYS)
            return 0;          /* there is none, or the file system has no lists */
        if (errno != ERANGE) { /* ERANGE: it has grown between the two calls */
            perms->mode &= OWNER;
            return 0;
        }
    }
}

static int acl_write(int descriptor, const void *acl, size_t size)
{
    return fsetxattr(descriptor, acl_name, acl, size, 0);
}

#else

static int acl_read(struct pici_perms *perms, const char *path, int descriptor)
{
    (void)perms;
    (void)path;
    (void)descriptor;
    return 0;
}

static int acl_write(int descriptor, const void *acl, size_t size)
{
    (void)descriptor;
    (void)acl;
    (void)size;
    return -1;
}

#endif

/* ---- Taking them ---- */

static struct pici_perms of_stat(const struct stat *file_status)
{
    return (struct pici_perms){.files = 1,
                               .mode = file_status->st_mode & 0777,
                               .uid = file_status->st_uid,
                               .gid = file_status->st_gid,
                               .same_uid = 1,
                               .same_gid = 1};
}

int pici_perms_of_path(struct pici_perms *perms, const char *path, const struct stat *file_status)
{
    *perms = of_stat(file_status);
    return acl_read(perms, path, -1);
}

/* Access control lists are not merged: the owner alone remains. */
void pici_perms_narrow(struct pici_perms *perms, const struct pici_perms *others)
{
    perms->files += others->files;
    perms->mode &= others->mode;
    perms->same_uid = perms->same_uid && others->same_uid && perms->uid == others->uid;
    perms->same_gid = perms->same_gid && others->same_gid && perms->gid == others->gid;
    if (perms->acl || others->acl)
        perms->mode &= OWNER;
    free(perms->acl);
    perms->acl = NULL;
}

int pici_perms_add(struct pici_perms *perms, int descriptor)
{
    struct stat file_status;
    if (fstat(descriptor, &file_status) != 0 || !S_ISREG(file_status.st_mode))
        return 0;
    struct pici_perms single = of_stat(&file_status);
    const int error_number = acl_read(&single, NULL, descriptor);
    if (error_number)
        return error_number;
    if (perms->files) {
        pici_perms_narrow(perms, &single);
        pici_perms_free(&single);
    } else {
        *perms = single;
    }
    return 0;
}

void pici_perms_free(struct pici_perms *perms)
{
    free(perms->acl);
    perms->acl = NULL;
}

/* ---- Giving them ---- */

/* What both group and others may do, for both. */
static mode_t common(mode_t mode)
{
    mode_t common_mode = mode & mode >> 3 & OTHERS;
    return (mode & OWNER) | common_mode << 3 | common_mode;
}

/* The error of a file system without permissions, or without these. */
static int no_such_thing(int error_number)
{
    return error_number == EPERM || error_number == ENOTSUP || error_number == EOPNOTSUPP || error_number == ENOSYS;
}

int pici_perms_set(const struct pici_perms *perms, int descriptor)
{
    struct stat file_status;
    mode_t mode = perms->mode;
    int listed = 0;
    if (fstat(descriptor, &file_status) != 0)
        return errno;
    int group = perms->same_gid && (file_status.st_gid == perms->gid || fchown(descriptor, (uid_t)-1, perms->gid) == 0);
    if (perms->acl) /* sets the mode too */
        listed = group && acl_write(descriptor, perms->acl, perms->acl_size) == 0;
    if (perms->acl && !listed)
        mode &= OWNER; /* with a list, the mode's group bits are the list's mask */
    else if (!group)
        mode = common(mode);
    if (!listed && fchmod(descriptor, mode) != 0 && !no_such_thing(errno))
        return errno;
    /* Set the owner last: after giving the file away, this process may not change its mode any more. Only privileged
     * processes may. */
    if (perms->same_uid && file_status.st_uid != perms->uid)
        (void)!fchown(descriptor, perms->uid, (gid_t)-1);
    return 0;
}
