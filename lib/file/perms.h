/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Owner, group and permissions for a new file, taken from other files. */
#ifndef PICI_LIB_FILE_PERMS_H
#define PICI_LIB_FILE_PERMS_H

#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* What a new file is to have: what a number of files all permit. */
struct pici_perms {
    size_t files; /* 0: what any new file has; the rest is not set */
    mode_t mode;  /* of 0777 */
    uid_t uid;
    gid_t gid;
    int same_uid, same_gid; /* 0: the files that it is taken from have several */
    void *acl;              /* [acl_len] the access control list, as the system stores it; null if there is none */
    size_t acl_size;
};

/* The permissions of the regular file at path, whose status is file_status. 0 or errno. */
int pici_perms_of_path(struct pici_perms *, const char *path, const struct stat *file_status);

/* Add a file to those whose permissions are kept, unless it is no regular file. 0 or errno. */
int pici_perms_add(struct pici_perms *, int descriptor);

/* Add the files of `others`. Both have some. */
void pici_perms_narrow(struct pici_perms *, const struct pici_perms *others);

/* Give them to the file open at descriptor, which only its owner, this process, has access to so far. At no moment does
 * the file permit what they do not. Owner and group are kept where the process may set them; a group that is not kept
 * gets what both group and others had, and so do the others. 0 or errno. */
int pici_perms_set(const struct pici_perms *, int descriptor);

void pici_perms_free(struct pici_perms *);

#endif
