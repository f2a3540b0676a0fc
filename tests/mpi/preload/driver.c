/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An imitation of CUDA's driver, with one device whose primary context exists. */
int cuCtxGetCurrent(void **context);
int cuDeviceGetCount(int *count);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);

int cuCtxGetCurrent(void **context)
{
    *context = 0;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = device == 0;
    return 0;
}
