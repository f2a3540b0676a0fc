/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Owner, group and permissions for a new file, taken from other files. */
#ifndef PICI_LIB_FILE_PERMS_H
#define PICI_LIB_FILE_PERMS_H

#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Permissions for a new file: those that all of a number of files grant. */
struct pici_perms {
    size_t files; /* 0: default permissions; the rest is not set */
    mode_t mode;  /* of 0777 */
    uid_t uid;
    gid_t gid;
    int same_uid, same_gid; /* 0: the source files differ */
    void *acl;              /* [acl_size] the access control list, as the system stores it; null if there is none */
    size_t acl_size;
};

/* The permissions of the regular file at path, whose status is file_status. 0 or errno. */
int pici_perms_of_path(struct pici_perms *, const char *path, const struct stat *file_status);

/* Add a file to the source files, if it is a regular file. 0 or errno. */
int pici_perms_add(struct pici_perms *, int descriptor);

/* Add the files of `others`. Both have some. */
void pici_perms_narrow(struct pici_perms *, const struct pici_perms *others);

/* Set the permissions of the file open at descriptor, which only this process can access so far. The file never permits
 * more than they do. Sets owner and group if the process may. If it may not set the group, group and others get the
 * permissions that both had. 0 or errno. */
int pici_perms_set(const struct pici_perms *, int descriptor);

void pici_perms_free(struct pici_perms *);

#endif
