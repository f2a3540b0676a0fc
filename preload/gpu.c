/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "preload/gpu.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

/* Find a function of CUDA's driver. POSIX lets dlsym return the address of a function. */
static void find(void *library, const char *name, void *function)
{
    void *const found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

/* Whether there is a CUDA context, also of other threads: the CUDA runtime makes the devices' primary ones. Before
 * cuInit all of these functions fail. */
static int cuda_context(void *driver)
{
    int (*current)(void **) = NULL, (*count)(int *) = NULL, (*state)(int, unsigned *, int *) = NULL;
    void *context = NULL;
    int devices = 0;
    find(driver, "cuCtxGetCurrent", &current);
    find(driver, "cuDeviceGetCount", &count);
    find(driver, "cuDevicePrimaryCtxGetState", &state);
    if (current && current(&context) == 0 && context)
        return 1;
    if (!count || !state || count(&devices) != 0)
        return 0;
    for (int device = 0; device < devices; device++) {
        unsigned flags = 0;
        int active = 0;
        if (state(device, &flags, &active) == 0 && active)
            return 1;
    }
    return 0;
}

/* Note the number of libraries that the process has loaded so far, including those that it has closed. 0: not known. */
static int note_loads(struct dl_phdr_info *info, size_t bytes, void *loads)
{
    if (bytes >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
        *(unsigned long long *)loads = info->dlpi_adds;
    return 1; /* one library is enough */
}

static void *loaded(const char *name)
{
    return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

/* A look for a library that is not loaded searches the file system. So this function looks again only after other
 * libraries were loaded. */
int pmpi_gpu(void)
{
    static _Atomic unsigned long long none; /* the number of loads after which none of these was loaded */
    unsigned long long loads = 0;
    dl_iterate_phdr(note_loads, &loads);
    if (loads && loads == none)
        return 0;
    static const char *const HIP[] = {"libamdhip64.so", "libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7",
                                      "libamdhip64.so.8"};
    void *library = loaded("libcuda.so.1");
    const int cuda = library != NULL; /* there may be a context later */
    int found = 0;
    if (cuda) {
        found = cuda_context(library);
        dlclose(library);
    }
    for (size_t i = 0; !found && i < sizeof HIP / sizeof *HIP; i++) {
        library = loaded(HIP[i]);
        if (library) {
            found = 1;
            dlclose(library);
        }
    }
    if (!found && !cuda)
        none = loads;
    return found;
}
