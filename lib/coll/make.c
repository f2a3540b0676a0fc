/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making, tuning and freeing communicators. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "coll/early.h"
#include "coll/engine_stream.h"
#include "coll/make.h"
#include "coll/note.h"
#include "sized.h"
#include "xxh64.h"

/* The size of the first version's struct. */
enum { TRANSPORT_FIRST = offsetof(struct pici_transport, receives) };

static void order_ranks(struct pici_comm *comm)
{
    pici_schedule_order(comm->node_of, comm->ranks, comm->order);
    comm->nodes = 0;
    comm->in_order = 1;
    for (int i = 0; i < comm->ranks; i++) {
        if (comm->order[i] == comm->rank)
            comm->virtual_rank = i;
        comm->in_order &= comm->order[i] == i;
        if (i == 0 || comm->node_of[comm->order[i]] != comm->node_of[comm->order[i - 1]])
            comm->begin[comm->nodes++] = i;
    }
    comm->begin[comm->nodes] = comm->ranks;
    comm->order_hash = pici_xxh64(comm->order, (size_t)comm->ranks * sizeof *comm->order, 0);
    comm->on_nodes = (struct schedule_nodes){comm->nodes, comm->begin};
}

void pici_comm_shell(struct pici_comm *comm)
{
    (void)pici_trace_close(comm->trace); /* nobody is left to report it to */
    if (comm->engine_self)
        comm->engine->close(comm->engine_self, comm->leaks);
    if (comm->other)
        comm->other->close(comm->other_self, comm->leaks);
    if (!comm->leaks)
        free(comm->agreements);
    pici_chooser_close(comm->chooser);
    free(comm->tables);
    pici_stream_pieces_free(comm->pieces);
    free(comm->last_laid);
    free(comm->spare);
    free(comm->order);
    free(comm->node_of);
    free(comm->begin);
    free(comm);
}

static enum pici_status make(struct pici_comm *comm, const struct pici_transport *transport)
{
    char reason[256];
    enum pici_status status = pici_settings_read(&comm->settings, reason, sizeof reason);
    if (status) {
        pici_coll_note(NULL, "%s", reason);
        return status;
    }
    comm->engine = &pici_engine_host;
    comm->engine_self = pici_engine_host_new();
    comm->rank = transport->rank;
    comm->ranks = transport->ranks;
    comm->generation = pici_coll_generation();
    comm->order = malloc((size_t)transport->ranks * sizeof *comm->order);
    comm->node_of = calloc((size_t)transport->ranks, sizeof *comm->node_of);
    comm->begin = malloc(((size_t)transport->ranks + 1) * sizeof *comm->begin);
    comm->spare = malloc(sizeof *comm->spare);
    comm->agreements = malloc(pici_early_memory(comm));
    comm->last_laid = calloc(1, sizeof *comm->last_laid);
    if (!comm->order || !comm->node_of || !comm->begin || !comm->spare || !comm->agreements || !comm->last_laid ||
        !comm->engine_self) {
        pici_coll_note(NULL, "no memory for a communicator of %d ranks", transport->ranks);
        return PICI_E_NOMEM;
    }
    if (transport->nodes && (status = transport->nodes(transport->context, comm->node_of))) {
        pici_coll_note(NULL, "the transport cannot tell which ranks share a node: %s",
                       transport->error ? transport->error(transport->context) : pici_strerror(status));
        return status;
    }
    order_ranks(comm);
    if (comm->settings.trace && (status = pici_trace_open(&comm->trace, comm->settings.trace, comm->rank)))
        pici_coll_note(NULL, "PICI_TRACE: cannot create %.160s.%d", comm->settings.trace, comm->rank);
    if (!status && (status = pici_chooser_open(&comm->chooser, comm->settings.tune,
                                               comm->settings.tune_verbose && !comm->rank, reason, sizeof reason)))
        pici_coll_note(NULL, "%s", reason);
    comm->settings.trace = comm->settings.tune = NULL; /* the environment's memory, like the next three */
    comm->settings.rendezvous = comm->settings.token = comm->settings.interface = NULL;
    return status;
}

/* Copy the caller's transport. One with the struct of 0.1 gets paired schedules only. */
static enum pici_status copy_transport(struct pici_comm *comm, const struct pici_transport *transport)
{
    const struct pici_transport none = PICI_TRANSPORT_INIT;
    comm->transport = none;
    comm->paired_only = transport->size < SIZED_THROUGH(struct pici_transport, sends);
    return sized_read(&comm->transport, sizeof comm->transport, TRANSPORT_FIRST, transport);
}

enum pici_status pici_comm_transport(struct pici_comm **out, const struct pici_transport *transport)
{
    pici_coll_note(NULL, "%s", "");
    if (out)
        *out = NULL;
    if (!transport) {
        pici_coll_note(NULL, "no transport");
        return PICI_E_ARG;
    }
    enum pici_status status = PICI_E_ARG;
    struct pici_comm *comm = NULL;
    if (!out)
        pici_coll_note(NULL, "the pointer to the new communicator is NULL");
    else if (transport->size < TRANSPORT_FIRST || !transport->send || !transport->recv || !transport->test ||
             !transport->abandon || !transport->close)
        pici_coll_note(NULL, "invalid struct pici_transport: a function is missing, or the member size is wrong");
    else if (transport->ranks < 1 || transport->ranks > COLL_MAX_RANKS || transport->rank < 0 ||
             transport->rank >= transport->ranks)
        pici_coll_note(NULL, "rank %d out of range (world size %d)", transport->rank, transport->ranks);
    else if (!(comm = calloc(1, sizeof *comm))) {
        pici_coll_note(NULL, "no memory for a communicator");
        status = PICI_E_NOMEM;
    } else if ((status = copy_transport(comm, transport))) {
        pici_coll_note(NULL, "struct pici_transport has members of a later version: update pici");
    } else if ((status = make(comm, transport)) == PICI_OK) {
        *out = comm;
        return PICI_OK;
    }
    if (comm)
        pici_comm_shell(comm);
    if (transport->size >= TRANSPORT_FIRST && transport->close)
        transport->close(transport->context);
    return status;
}

enum pici_status pici_comm_tune(struct pici_comm *comm, const struct pici_tune *tune)
{
    if (!comm)
        return PICI_E_ARG;
    if (comm->broken || comm->head || comm->generation != pici_coll_generation())
        return PICI_E_BROKEN;
    return pici_settings_tune(&comm->settings, tune);
}

void pici_comm_force(struct pici_comm *comm, const struct schedule *schedule)
{
    comm->forced = schedule;
    *comm->last_laid = (struct coll_call){0};
}

enum pici_status pici_comm_set_nodes(struct pici_comm *comm, const int *node_of)
{
    if (!comm || !node_of)
        return PICI_E_ARG;
    if (comm->broken || comm->head || comm->generation != pici_coll_generation())
        return PICI_E_BROKEN;
    memcpy(comm->node_of, node_of, (size_t)comm->ranks * sizeof *node_of);
    order_ranks(comm);
    *comm->last_laid = (struct coll_call){0};
    pici_chooser_forget(comm->chooser);
    return PICI_OK;
}

enum pici_status pici_comm_engine(struct pici_comm *comm, const struct pici_engine *engine, void *self)
{
    if (comm->broken || comm->head || comm->generation != pici_coll_generation())
        return PICI_E_BROKEN;
    if (engine->size != sizeof *engine)
        return PICI_E_UNSUPPORTED;
    if (comm->other)
        comm->other->close(comm->other_self, 0);
    comm->other = engine;
    comm->other_self = self;
    const struct pici_mover mover = {.self = self, .owns = engine->holds, .move = engine->move};
    if (comm->transport.mover) {
        comm->transport.mover(comm->transport.context, &mover);
        if (comm->transport.memory == PICI_MEMORY_HOST)
            comm->transport.memory = PICI_MEMORY_ANY;
    }
    return PICI_OK;
}

int pici_comm_rank(const struct pici_comm *comm)
{
    return comm ? comm->rank : -1;
}

int pici_comm_size(const struct pici_comm *comm)
{
    return comm ? comm->ranks : 0;
}

enum pici_status pici_comm_reserve(struct pici_comm *comm, size_t bytes)
{
    if (!comm)
        return PICI_E_ARG;
    if (comm->broken || comm->generation != pici_coll_generation())
        return PICI_E_BROKEN;
    /* a running collective uses that memory */
    if (comm->head)
        return PICI_E_BROKEN;
    return pici_engine_host_reserve(comm->engine_self, bytes);
}

void pici_comm_free(struct pici_comm *comm)
{
    if (!comm)
        return;
    /* a copy in a child: memory, threads and connections belong to the parent */
    if (comm->generation != pici_coll_generation())
        return;
    if (comm->head)
        pici_coll_break(comm, PICI_E_BROKEN, PICI_E_PEER);
    comm->transport.close(comm->transport.context);
    pici_comm_shell(comm);
}
