/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The fake of NCCL itself: that it catches what is wrong, and gets stuck where NCCL may. The last line is "N passed, N
 * failed". */
#include <string>

#include "emu/nccl.h"
#include "emu/tally.h"

struct fake {
    ncclComm_t comm[2];
    cudaStream_t stream[2];
    uint8_t *device[2];
    uint8_t host[8] = {0};
    fake()
    {
        emu::defer(9);
        emu::nccl_eager(0);
        ncclCommInitAll(comm, 2, nullptr);
        for (int r = 0; r < 2; r++) {
            cudaSetDevice(r);
            cudaStreamCreateWithFlags(&stream[r], cudaStreamNonBlocking);
            cudaMalloc((void **)&device[r], 16);
        }
    }
    void send(int r, size_t n)
    {
        ncclSend(device[r], n, ncclUint8, 1 - r, comm[r], stream[r]);
    }
    void recv(int r, size_t n)
    {
        ncclRecv(device[r] + 8, n, ncclUint8, 1 - r, comm[r], stream[r]);
    }
    ~fake()
    {
        for (int r = 0; r < 2; r++) {
            ncclCommAbort(comm[r]);
            cudaFree(device[r]);
        }
    }
};

/* Done wrong, it is caught, for what it is. */
template <class F> static void caught(const char *what, const char *why, F f)
{
    fake n;
    f(n);
    emu::settle();
    const std::string fault = emu::nccl_fault();
    tally(fault.find(why) != std::string::npos && !fault.empty(), what, fault.c_str());
}

int main()
{
    for (int grouped = 0; grouped < 2; grouped++) {
        fake n;
        for (int r = 0; r < 2; r++) {
            if (grouped)
                ncclGroupStart();
            n.send(r, 8);
            n.recv(r, 8);
            if (grouped)
                ncclGroupEnd();
        }
        tally(emu::settle() == (bool)grouped && emu::nccl_fault().empty(), "a send before a receive, on both sides",
              grouped ? "is stuck" : "is not stuck");
    }
    {
        fake n;
        cudaStream_t other;
        cudaSetDevice(0);
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        n.send(0, 8);
        ncclRecv(n.device[0] + 8, 8, ncclUint8, 1, n.comm[0], other);
        n.send(1, 8);
        tally(!emu::settle(), "a receive in another stream, behind a send that is stuck", "is not stuck");
        n.recv(1, 8);
        tally(!emu::settle(), "two that wait for each other", "do not");
    }
    caught("other counts", "rank 0 sends 8 bytes where rank 1 receives 7", [](fake &n) {
        n.send(0, 8);
        n.recv(1, 7);
    });
    caught("host memory", "8 bytes that are not the device's",
           [](fake &n) { ncclSend(n.host, 8, ncclUint8, 1, n.comm[0], n.stream[0]); });
    caught("beyond a buffer", "17 bytes that are not the device's", [](fake &n) { n.send(0, 17); });
    caught("a send ahead that nobody receives", "rank 0 sent 8 bytes that rank 1 never receives", [](fake &n) {
        emu::nccl_eager(8);
        n.send(0, 8);
        emu::settle();
        ncclCommDestroy(n.comm[0]);
        ncclCommDestroy(n.comm[1]);
    });
    caught("a send that nobody receives", "rank 0 destroys a communicator at work", [](fake &n) {
        n.send(0, 8);
        emu::settle();
        ncclCommDestroy(n.comm[0]);
    });
    caught("itself", "rank 0 has no peer 0",
           [](fake &n) { ncclSend(n.device[0], 8, ncclUint8, 0, n.comm[0], n.stream[0]); });
    caught("two streams", "a group in two streams", [](fake &n) {
        ncclGroupStart();
        n.send(0, 8);
        ncclRecv(n.device[0], 8, ncclUint8, 1, n.comm[0], nullptr);
        ncclGroupEnd();
    });
    caught("a group that did not start", "ends that did not start", [](fake &) { ncclGroupEnd(); });
    caught("a communicator that is not ready", "is not ready", [](fake &n) {
        emu::nccl_slow(n.comm[0], 2);
        n.send(0, 8);
        n.recv(0, 8);
    });
    caught("a communicator that is no more", "is no more", [](fake &n) {
        ncclCommDestroy(n.comm[0]);
        n.send(0, 8);
    });
    caught("destroyed at work", "destroys a communicator at work", [](fake &n) {
        n.send(0, 8);
        ncclCommDestroy(n.comm[0]);
    });
    caught("other counts gathered", "gather", [](fake &n) {
        for (int r = 0; r < 2; r++)
            ncclAllGather(n.device[r], n.device[r] + 8, r ? 1 : 2, ncclUint8, n.comm[r], n.stream[r]);
    });
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
