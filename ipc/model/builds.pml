/* builds.pml - a model of ../PROTOCOL.md: one daemon and two clients with builds, reads, settling and crashes.
 *
 * Each client spills two units, restores them, drops what is left and hangs up. A unit is a chunk of one region that is
 * built by two packets, or a whole region of a batch of two in one packet. It dies at any step, and so does the daemon,
 * which a successor replaces. Names of states are those of PROTOCOL.md. Bounds: see check.sh, which also plants faults
 * (-D FAULT_...) that this model must find.
 *
 * Abstracted away: lengths, codecs, memories (a buffer of the client is known by the unit that uses it), the engine's
 * moves between tiers, expiry of a session whose client lives. Requests that a dead daemon has not taken are lost;
 * replies that it has sent are still read, as with a Unix socket. */

#ifndef MAX_CRASHES
#define MAX_CRASHES 1 /* of the daemon */
#endif
#ifndef MAX_DEATHS
#define MAX_DEATHS 1 /* of clients */
#endif
#ifndef MAX_BAD
#define MAX_BAD 1 /* steps of the mover that fail, and open builds or reads that expire */
#endif
#ifndef PLACES
#define PLACES 3 /* in the tier, at most 3: one fewer than both clients want */
#endif

/* ---- messages ---- */

mtype = { BUILD_BEGIN, BUILD_COMMIT, BUILD_ABORT, BUILD_WHOLE,          /* BUILD: first chunk, last chunk, all of it */
          READ_BEGIN, READ_CHUNK, READ_END, READ_WHOLE,                 /* READ: the same */
          DISCARD, SETTLE_BUILD, SETTLE_READ, SETTLE_ALL };
mtype = { TAKEN, REFUSED,      /* RESULTS or ERROR to a packet that does not end a build or a read */
          RESULTS, ERROR, ERESTARTED };

chan request[2] = [3] of { mtype };
chan reply[2] = [3] of { mtype, bit }; /* to which unit's packet, where that matters */

/* ---- what survives the daemon: its memory is a memfd ---- */

mtype = { NO_RECORD, RECORD_OUT, RECORD_IN };
mtype record[4];       /* of region r of client c: 2 * c + r */
bit is_settled[4];     /* the record no longer needs that of its batch */
bit batch_record[2];
bit session_record[2] = 1;
byte content[3];       /* unit + 1 whose frame is complete there */

/* ---- the daemon's ---- */

mtype = { SESSION_NONE, SESSION_UP, SESSION_FOUND };
mtype = { BUILD_NONE, BUILD_OPEN, BUILD_SEALED, BUILD_FAILED };
mtype = { READ_NONE, READ_OPEN, READ_ENDING, READ_FAILED };
mtype = { IDLE, RUNS, ENDED };
mtype = { ABSENT, OUT, RESTORING };
mtype session[2] = SESSION_NONE;
mtype build[2] = BUILD_NONE;
mtype read[2] = READ_NONE;
mtype step[4] = IDLE;   /* the mover's, on a unit */
mtype region[4] = ABSENT;
bit ends[2];            /* COMMIT, ABORT or END has come and is not answered */
bit reply_due[4];       /* to the packet of a unit that does not end its build or read */
byte place[4];          /* of a unit, + 1; survives where a record names it */
byte user[3];           /* unit + 1; 0: free */
byte charged[2];        /* to the tenant's budget */
bit is_alive;
byte n_crashes, n_bad;

/* ---- the clients' ---- */

bit is_batch[2], is_pipelined[2], is_durable[2], keeps[2];
bit is_linked[2] = 1;   /* to a daemon that lives */
bit has_gone[2];        /* died, or hung up */
byte n_deaths;
/* Not state of anybody, but what is claimed: */
bit holds[2];           /* the client has been told of its regions, and has not begun to give them up */
bit gives_up[2];        /* regions are being consumed or dropped, one after the other */

#define REGION(c, u) (2 * (c) + (is_batch[c] -> (u) : 0))
#define RUNNING(c) (step[2 * (c)] == RUNS || step[2 * (c) + 1] == RUNS)
#define BOTH_ENDED(c) (step[2 * (c)] == ENDED && step[2 * (c) + 1] == ENDED)
/* A record that a successor would believe. */
#define STORED(c, r) (record[2 * (c) + (r)] == RECORD_OUT && \
                      (!is_batch[c] || is_settled[2 * (c) + (r)] || batch_record[c]))
#define ALL_STORED(c) (STORED(c, 0) && (!is_batch[c] || STORED(c, 1)))
#define NONE_STORED(c) (!STORED(c, 0) && !(is_batch[c] && STORED(c, 1)))
#define WHOLE(x) (place[x] && user[place[x] - 1] == (x) + 1 && content[place[x] - 1] == (x) + 1)
#define IN_RECORD(x) (place[x] && content[place[x] - 1] == (x) + 1)

/* ======== the daemon ======== */

/* May die here. Only in atomic sequences of the daemon. */
inline may_crash() {
    if
    :: n_crashes < MAX_CRASHES -> n_crashes++; goto crashed
    :: skip
    fi
}

inline take_place(x) {
    p = 0;
    do
    :: p < PLACES && user[p] -> p++
    :: else -> break
    od;
    if
    :: p < PLACES -> user[p] = x + 1; place[x] = p + 1; charged[(x) / 2]++
    :: else
    fi;
    p = 0
}

inline give_place(x) {
    if
    :: place[x] -> user[place[x] - 1] = 0; place[x] = 0; charged[(x) / 2]--
    :: else
    fi
}

inline fail_build(c) {
    build[c] = BUILD_FAILED;
#ifdef FAULT_FREE_RUNNING
    give_place(2 * c); give_place(2 * c + 1)
#else
    if :: step[2 * c] != RUNS -> give_place(2 * c) :: else fi;
    if :: step[2 * c + 1] != RUNS -> give_place(2 * c + 1) :: else fi
#endif
}

inline append(c, u) {
    take_place(2 * c + u);
    if
    :: place[2 * c + u] -> step[2 * c + u] = RUNS
    :: else -> fail_build(c)
    fi
}

inline free_record(x) { record[x] = NO_RECORD; is_settled[x] = 0 }

/* The batch's record makes those of its regions valid; then they are made so one by one, and it goes. */
inline write_records(c) {
    record[2 * c] = RECORD_OUT;
    may_crash();
    if
    :: is_batch[c] ->
        record[2 * c + 1] = RECORD_OUT;
        may_crash();
        batch_record[c] = 1;
        may_crash();
        is_settled[2 * c] = 1;
        may_crash();
        is_settled[2 * c + 1] = 1;
        may_crash();
        batch_record[c] = 0;
        may_crash()
    :: else
    fi
}

inline commit(c) {
#ifdef FAULT_REPLY_FIRST
    reply[c] ! RESULTS, 0;
    may_crash();
    write_records(c);
#else
    write_records(c);
    reply[c] ! RESULTS, 0;
#endif
    region[2 * c] = OUT;
    if :: is_batch[c] -> region[2 * c + 1] = OUT :: else fi;
    build[c] = BUILD_NONE; ends[c] = 0;
    step[2 * c] = IDLE; step[2 * c + 1] = IDLE;
    may_crash()
}

inline give_all(c) { give_place(2 * c); give_place(2 * c + 1) }

/* The bytes are the client's again, who may not know it: records say IN until the reply is in the socket. */
inline consume(c) {
    record[2 * c] = RECORD_IN;
    may_crash();
    if :: is_batch[c] -> record[2 * c + 1] = RECORD_IN; may_crash() :: else fi;
    give_all(c);
    region[2 * c] = ABSENT; region[2 * c + 1] = ABSENT;
#ifdef FAULT_RETIRE_FIRST
    free_record(2 * c); free_record(2 * c + 1);
    may_crash();
    reply[c] ! RESULTS, 0;
#else
    reply[c] ! RESULTS, 0;
    may_crash();
    free_record(2 * c); free_record(2 * c + 1);
#endif
    may_crash()
}

inline end_read(c) {
    if
    :: keeps[c] || is_durable[c] ->
        region[2 * c] = OUT;
        if :: is_batch[c] -> region[2 * c + 1] = OUT :: else fi;
        reply[c] ! RESULTS, 0
    :: else -> consume(c)
    fi;
    read[c] = READ_NONE; ends[c] = 0;
    step[2 * c] = IDLE; step[2 * c + 1] = IDLE
}

/* What a failed build or read is asked is answered with its error, until its end. */
inline advance(c) {
    if
    :: build[c] == BUILD_SEALED && BOTH_ENDED(c) -> commit(c)
    :: build[c] == BUILD_FAILED && ends[c] && !RUNNING(c) ->
        build[c] = BUILD_NONE; ends[c] = 0;
        step[2 * c] = IDLE; step[2 * c + 1] = IDLE;
        reply[c] ! ERROR, 0
    :: read[c] == READ_ENDING && BOTH_ENDED(c) -> end_read(c)
    :: read[c] == READ_FAILED && !RUNNING(c) ->
        step[2 * c] = IDLE; step[2 * c + 1] = IDLE;
        region[2 * c] = OUT;
        if :: is_batch[c] -> region[2 * c + 1] = OUT :: else fi;
        if :: ends[c] -> read[c] = READ_NONE; ends[c] = 0; reply[c] ! ERROR, 0 :: else fi
    :: else
    fi
}

inline begin_read(c) {
    assert(ALL_STORED(c) && region[2 * c] == OUT && WHOLE(2 * c) && WHOLE(2 * c + 1));
    region[2 * c] = RESTORING;
    if :: is_batch[c] -> region[2 * c + 1] = RESTORING :: else fi;
    step[2 * c] = RUNS
}

inline discard(c) {
    free_record(2 * c);
    may_crash();
    free_record(2 * c + 1);
    may_crash();
    give_all(c);
    region[2 * c] = ABSENT; region[2 * c + 1] = ABSENT
}

inline settle_build(c) {
    if
    :: region[2 * c] == OUT && (!is_batch[c] || region[2 * c + 1] == OUT) -> reply[c] ! RESULTS, 0
    :: else -> discard(c); reply[c] ! ERESTARTED, 0
    fi
}

/* Of a batch all were back before the first was IN. */
inline settle_read(c) {
    if
    :: record[2 * c] == RECORD_IN || (is_batch[c] && record[2 * c + 1] == RECORD_IN) -> consume(c)
    :: else ->
        assert(ALL_STORED(c)); /* else: ESTALE, and the client does not know what became of its read */
        reply[c] ! ERESTARTED, 0
    fi
}

inline take_packet(c) {
    request[c] ? message;
    if
    :: message == BUILD_BEGIN ->
        build[c] = BUILD_OPEN; append(c, 0);
        if
        :: build[c] == BUILD_FAILED -> reply[c] ! REFUSED, 0
#ifdef FAULT_TAKEN_EARLY
        :: else -> reply[c] ! TAKEN, 0
#else
        :: else -> reply_due[2 * c] = 1
#endif
        fi
    :: message == BUILD_COMMIT ->
        ends[c] = 1;
        if
        :: build[c] == BUILD_OPEN -> build[c] = BUILD_SEALED; append(c, 1)
        :: else
        fi
    :: message == BUILD_ABORT ->
        ends[c] = 1;
        if :: build[c] == BUILD_OPEN -> fail_build(c) :: else fi
    :: message == BUILD_WHOLE ->
        ends[c] = 1; build[c] = BUILD_SEALED; append(c, 0);
        if :: build[c] == BUILD_SEALED -> append(c, 1) :: else fi
    :: message == READ_BEGIN -> read[c] = READ_OPEN; begin_read(c); reply_due[2 * c] = 1
    :: message == READ_CHUNK ->
        if
        :: read[c] == READ_OPEN -> step[2 * c + 1] = RUNS; reply_due[2 * c + 1] = 1
        :: else -> reply[c] ! REFUSED, 1
        fi
    :: message == READ_END ->
        ends[c] = 1;
        if :: read[c] == READ_OPEN -> read[c] = READ_ENDING :: else fi
    :: message == READ_WHOLE -> ends[c] = 1; read[c] = READ_ENDING; begin_read(c); step[2 * c + 1] = RUNS
    :: message == DISCARD -> discard(c); reply[c] ! RESULTS, 0
    :: message == SETTLE_BUILD -> settle_build(c)
    :: message == SETTLE_READ -> settle_read(c)
    :: message == SETTLE_ALL ->
        if :: record[2 * c] == RECORD_IN -> free_record(2 * c) :: else fi;
        if :: record[2 * c + 1] == RECORD_IN -> free_record(2 * c + 1) :: else fi
    fi;
    message = 0
}

/* A step of the mover ends: its frame is in its place, or its bytes are in the client's buffer, or it has failed. */
inline end_step(c, u) {
    step[2 * c + u] = ENDED;
    if
    :: build[c] != BUILD_NONE ->
        assert(place[2 * c + u] && user[place[2 * c + u] - 1] == 2 * c + u + 1); /* nobody else's by now */
        content[place[2 * c + u] - 1] = 2 * c + u + 1;
        if
        :: n_bad < MAX_BAD -> n_bad++; fail_build(c)
        :: build[c] == BUILD_FAILED -> give_place(2 * c + u)
        :: build[c] != BUILD_FAILED
        fi
    :: else ->
        if
        :: n_bad < MAX_BAD -> n_bad++; read[c] = READ_FAILED
        :: skip
        fi
    fi;
    if
    :: reply_due[2 * c + u] ->
        reply_due[2 * c + u] = 0;
        if
        :: has_gone[c]
        :: !has_gone[c] && (build[c] == BUILD_FAILED || read[c] == READ_FAILED) -> reply[c] ! REFUSED, u
        :: else -> reply[c] ! TAKEN, u
        fi
    :: else
    fi
}

/* Idle for too long. */
inline expire(c) {
    n_bad++;
    if
    :: build[c] == BUILD_OPEN -> fail_build(c)
    :: else -> read[c] = READ_FAILED
    fi
}

/* The client has hung up, or did not come back in time. Durable regions stay. Records go before the space they name. */
inline close_session(c) {
    build[c] = BUILD_NONE; read[c] = READ_NONE; ends[c] = 0;
    step[2 * c] = IDLE; step[2 * c + 1] = IDLE;
    u = 0;
    do
    :: u < 2 ->
        if
        :: record[2 * c + u] != NO_RECORD && !(is_durable[c] && record[2 * c + u] == RECORD_OUT) ->
            free_record(2 * c + u); may_crash()
        :: else
        fi;
        u++
    :: else -> break
    od;
    u = 0;
    do
    :: u < 2 ->
        if :: record[REGION(c, u)] != RECORD_OUT -> give_place(2 * c + u) :: else fi;
        if :: record[2 * c + u] != RECORD_OUT -> region[2 * c + u] = ABSENT :: else -> region[2 * c + u] = OUT fi;
        u++
    :: else -> break
    od;
    u = 0;
    session_record[c] = 0; session[c] = SESSION_NONE
}

/* A batch without its record was not committed: none of it counts. One with it is whole. */
inline recover_batch(c) {
    if
    :: batch_record[c] ->
        is_settled[2 * c] = 1;
        may_crash();
        is_settled[2 * c + 1] = 1;
        may_crash();
        batch_record[c] = 0
    :: else ->
#ifndef FAULT_HALF_BATCH
        if
        :: record[2 * c] == RECORD_OUT && !is_settled[2 * c] -> free_record(2 * c); may_crash()
        :: else
        fi;
        if
        :: record[2 * c + 1] == RECORD_OUT && !is_settled[2 * c + 1] -> free_record(2 * c + 1)
        :: else
        fi
#else
        skip
#endif
    fi
}

/* What records name is there; all else is free. */
inline recover(c) {
    if :: is_batch[c] -> recover_batch(c) :: else fi;
    charged[c] = 0;
    u = 0;
    do
    :: u < 2 ->
        if
        :: record[REGION(c, u)] == RECORD_OUT -> user[place[2 * c + u] - 1] = 2 * c + u + 1; charged[c]++
        :: else -> place[2 * c + u] = 0
        fi;
        if :: record[2 * c + u] == RECORD_OUT -> region[2 * c + u] = OUT :: else fi;
        u++
    :: else -> break
    od;
    u = 0;
    if
    :: is_linked[c] -> session[c] = SESSION_UP /* the first daemon */
    :: !is_linked[c] && session_record[c] -> session[c] = SESSION_FOUND
    :: !is_linked[c] && !session_record[c]
    fi
}

inline lose(c) {
    do :: request[c] ? _ :: empty(request[c]) -> break od;
    is_linked[c] = 0;
    session[c] = SESSION_NONE; build[c] = BUILD_NONE; read[c] = READ_NONE; ends[c] = 0;
    step[2 * c] = IDLE; step[2 * c + 1] = IDLE;
    reply_due[2 * c] = 0; reply_due[2 * c + 1] = 0;
    region[2 * c] = ABSENT; region[2 * c + 1] = ABSENT
}

mtype = { TAKES_PACKET, STEP_ENDS, EXPIRES, CLOSES, CRASHES, STOPS };

/* What the loop may do next for a session; one thing at a time. */
#define TURNS_OF(who) \
    :: session[who] == SESSION_UP && !has_gone[who] && nempty(request[who]) -> c = who; turn = TAKES_PACKET \
    :: step[2 * (who)] == RUNS -> c = who; turn = STEP_ENDS \
    :: step[2 * (who) + 1] == RUNS -> c = who; u = 1; turn = STEP_ENDS \
    :: (build[who] == BUILD_OPEN || read[who] == READ_OPEN) && !RUNNING(who) && n_bad < MAX_BAD -> \
        c = who; turn = EXPIRES \
    :: has_gone[who] && session[who] != SESSION_NONE && !RUNNING(who) -> c = who; turn = CLOSES

proctype daemon() {
    mtype message, turn;
    byte p, u, c;
start:
    atomic {
        do
        :: c < 2 -> recover(c); c++
        :: else -> break
        od;
        c = 0;
        is_alive = 1
    }
    do
    :: atomic {
           if
           TURNS_OF(0)
           TURNS_OF(1)
           :: n_crashes < MAX_CRASHES && !(has_gone[0] && has_gone[1]) -> n_crashes++; turn = CRASHES
           :: has_gone[0] && has_gone[1] && session[0] == SESSION_NONE && session[1] == SESSION_NONE -> turn = STOPS
           fi;
           if
           :: turn == CRASHES -> goto crashed
           :: turn == STOPS -> goto stopped
           :: turn == CLOSES -> close_session(c)
           :: turn == TAKES_PACKET -> take_packet(c)
           :: turn == STEP_ENDS -> end_step(c, u)
           :: turn == EXPIRES -> expire(c)
           fi;
           if :: turn != CLOSES && !has_gone[c] -> advance(c) :: else fi;
           turn = 0; c = 0; u = 0
       }
    od;
stopped:
    /* Nobody is left: all that counts is what durable regions of clients that died have. */
    atomic {
        turn = 0;
        assert(record[0] != RECORD_IN && record[1] != RECORD_IN && record[2] != RECORD_IN && record[3] != RECORD_IN);
        assert(!batch_record[0] && !batch_record[1]);
        assert(charged[0] == (record[0] == RECORD_OUT -> (is_batch[0] -> 1 : 2) : 0) + (record[1] == RECORD_OUT));
        assert(charged[1] == (record[2] == RECORD_OUT -> (is_batch[1] -> 1 : 2) : 0) + (record[3] == RECORD_OUT));
        assert(charged[0] + charged[1] == (user[0] > 0) + (user[1] > 0) + (user[2] > 0));
        assert(is_durable[0] || !charged[0]);
        assert(is_durable[1] || !charged[1]);
        goto ended
    }
crashed:
    atomic {
        is_alive = 0;
        message = 0; turn = 0; p = 0; u = 0; c = 0;
        lose(0);
        lose(1);
        user[0] = 0; user[1] = 0; user[2] = 0;
        charged[0] = 0; charged[1] = 0
    }
    goto start;
ended:
    skip
}

/* ======== a client ======== */

mtype = { NONE, DONE, FAILED, RESTARTED };

/* The client reads or writes a unit's buffer, or gives it to somebody else. */
#define OWNS(c, u) assert(step[2 * (c) + (u)] != RUNS)

inline end_operation(what) {
    assert(outcome == NONE); /* told once */
    outcome = what;
    OWNS(c, 0);
    OWNS(c, 1)
}

inline may_die() {
    if
    :: n_deaths < MAX_DEATHS -> n_deaths++; goto died
    :: skip
    fi
}

/* answer: NONE if the connection is lost and nothing was answered. */
inline await() {
    if
#ifdef FAULT_REPLIES_LOST
    :: atomic { is_linked[c] && nempty(reply[c]) -> reply[c] ? answer, which }
    :: atomic { !is_linked[c] -> do :: reply[c] ? _, _ :: empty(reply[c]) -> break od; answer = 0 }
#else
    :: atomic { reply[c] ? answer, which }
    :: atomic { !is_linked[c] && empty(reply[c]) -> answer = 0 }
#endif
    :: atomic { n_deaths < MAX_DEATHS -> n_deaths++; goto died }
    fi
}

/* True if the daemon is there to be sent something; else answer is 0. */
inline send(what) {
    atomic {
        may_die();
        if
        :: is_linked[c] -> request[c] ! what
        :: else
        fi
    }
}

/* The connection comes back, and up to two packets go at once. */
inline come_back(first, second) {
    if
    :: atomic {
           is_alive && session[c] == SESSION_FOUND ->
           session[c] = SESSION_UP;
           is_linked[c] = 1;
           request[c] ! first;
           if :: second -> request[c] ! second :: else fi
       }
    :: atomic { n_deaths < MAX_DEATHS -> n_deaths++; goto died }
    fi
}

/* Has the last packet of an operation answered, over all crashes. COMMITTING or ENDING, then SETTLING. */
inline await_end(question) {
    await();
    do
    :: answer == TAKEN || answer == REFUSED -> await() /* to an earlier packet */
    :: answer == 0 ->
        come_back(question, SETTLE_ALL);
        await()
    :: else -> break
    od
}

/* SENDING, COMMITTING, SETTLING; then DONE or FAILED. */
inline spill() {
    if
    :: is_batch[c] -> send(BUILD_WHOLE); await_end(SETTLE_BUILD)
    :: else ->
        send(BUILD_BEGIN);
        if
        :: is_pipelined[c] -> send(BUILD_COMMIT); await_end(SETTLE_BUILD)
        :: else ->
            await();
            if
            :: answer == TAKEN ->
                OWNS(c, 0);       /* the next chunk goes through the same buffer */
                if
                :: send(BUILD_COMMIT); await_end(SETTLE_BUILD)
                :: send(BUILD_ABORT); await();
                   if :: answer == 0 -> answer = ERESTARTED :: answer != 0 -> assert(answer == ERROR) fi
                fi
            :: answer == REFUSED -> /* the build is FAILED until it is told that nothing more comes */
                send(BUILD_ABORT); await();
                if :: answer == 0 -> answer = ERESTARTED :: answer != 0 -> assert(answer == ERROR) fi
            :: answer == 0 -> answer = ERESTARTED
            fi
        fi
    fi;
    atomic {
        if
        :: answer == RESULTS -> end_operation(DONE); assert(ALL_STORED(c)); holds[c] = 1
        :: answer == ERROR -> end_operation(FAILED); assert(NONE_STORED(c))
        :: answer == ERESTARTED -> end_operation(RESTARTED); assert(NONE_STORED(c))
        fi;
        answer = 0
    }
}

/* READING, ENDING, SETTLING; then DONE or FAILED. Of a read in several packets the client has looked at the bytes
 * before it ends it: where it is told that the region is still stored it has them, and drops that. */
inline restore() {
    if
    :: is_batch[c] -> send(READ_WHOLE); await_end(SETTLE_READ)
    :: else ->
        send(READ_BEGIN);
        if
        :: is_pipelined[c] -> send(READ_CHUNK)
        :: else
        fi;
        await();
        if
        :: answer == TAKEN -> OWNS(c, which)
        :: answer == REFUSED -> is_refused = 1
        :: answer == 0 -> answer = ERESTARTED; goto restored
        fi;
        if
        :: is_pipelined[c]
        :: !is_pipelined[c] -> send(READ_CHUNK)
        fi;
        await();
        if
        :: answer == TAKEN -> OWNS(c, which)
        :: answer == REFUSED -> is_refused = 1
        :: answer == 0 -> answer = ERESTARTED; goto restored
        fi;
        atomic {
            if :: !is_refused && !keeps[c] && !is_durable[c] -> holds[c] = 0; gives_up[c] = 1 :: else fi
        }
        send(READ_END);
        await_end(SETTLE_READ);
        if
        :: answer == ERESTARTED && !is_refused -> answer = RESULTS
        :: else
        fi
    fi;
restored:
    atomic {
        if
        :: answer == RESULTS -> end_operation(DONE)
        :: answer == ERROR -> end_operation(FAILED); assert(ALL_STORED(c))
        :: answer == ERESTARTED -> end_operation(RESTARTED); assert(ALL_STORED(c))
        fi;
        answer = 0; which = 0; is_refused = 0
    }
}

/* May be asked twice. */
inline discard_all() {
    atomic { holds[c] = 0; gives_up[c] = 1 }
    send(DISCARD);
    await();
    do
    :: answer == 0 -> come_back(SETTLE_ALL, DISCARD); await()
    :: else -> break
    od;
    answer = 0
}

proctype client(byte c) {
    mtype outcome = NONE;
    mtype answer;
    bit which, is_refused;
    spill();
    if
    :: outcome == DONE ->
        outcome = NONE;
        if
        :: is_linked[c]
        :: !is_linked[c] -> come_back(SETTLE_ALL, 0)
        fi;
        if
        :: is_batch[c] && !keeps[c] && !is_durable[c] -> atomic { holds[c] = 0; gives_up[c] = 1 }
        :: else
        fi;
        restore();
        if
        :: atomic { NONE_STORED(c) && outcome == DONE && !keeps[c] && !is_durable[c] }
        :: else ->
            if :: is_linked[c] :: !is_linked[c] -> come_back(SETTLE_ALL, 0) fi;
            discard_all()
        fi
    :: else
    fi;
died:
    atomic {
        has_gone[c] = 1; is_linked[c] = 0; holds[c] = 0;
        answer = 0; which = 0; outcome = 0; is_refused = 0;
        do :: reply[c] ? _, _ :: empty(reply[c]) -> break od;
        do :: request[c] ? _ :: empty(request[c]) -> break od
    }
}

/* ======== what must hold in every state ======== */

#define LOST(c) (holds[c] && !(ALL_STORED(c) && IN_RECORD(2 * (c)) && IN_RECORD(2 * (c) + 1)))
#define COUNTS(c) (is_batch[c] && !gives_up[c] && (!has_gone[c] || is_durable[c]))
#define HALF(c) (COUNTS(c) && STORED(c, 0) != STORED(c, 1))
#define HALF_SEEN(c) (is_alive && COUNTS(c) && region[2 * (c)] != region[2 * (c) + 1])
#define SHARED(x, y) (place[x] && place[x] == place[y])
#define ANY_SHARED (SHARED(0, 1) || SHARED(0, 2) || SHARED(0, 3) || SHARED(1, 2) || SHARED(1, 3) || SHARED(2, 3))

active proctype monitor() {
end:
    atomic {
        LOST(0) || LOST(1) || HALF(0) || HALF(1) || HALF_SEEN(0) || HALF_SEEN(1) || ANY_SHARED ->
        assert(!LOST(0) && !LOST(1));           /* no committed region is lost */
        assert(!HALF(0) && !HALF(1));           /* nor would a successor find half of a batch */
        assert(!HALF_SEEN(0) && !HALF_SEEN(1)); /* nor does anybody see half of one */
        assert(!ANY_SHARED)                     /* no place has two frames */
    }
}

inline choose(c) {
    if
    :: is_batch[c] = 1
    :: is_pipelined[c] = 1
    :: skip
    fi;
    if
    :: is_durable[c] = 1
    :: keeps[c] = 1
    :: skip
    fi
}

#define KIND(c) (4 * is_batch[c] + 8 * is_pipelined[c] + is_durable[c] + 2 * keeps[c])

init {
    atomic {
        record[0] = NO_RECORD; record[1] = NO_RECORD; record[2] = NO_RECORD; record[3] = NO_RECORD;
        choose(0);
        choose(1);
        if
        :: KIND(0) <= KIND(1) -> run daemon(); run client(0); run client(1)
        :: else /* the same with the clients exchanged */
        fi
    }
}
