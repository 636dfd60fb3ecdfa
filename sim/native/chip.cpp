// The Verilated chip as a library: steps the clock, models the memory channels, talks to the host port.
//
// `ports.h` is generated beside the Verilated code: it names the channels' signals (`bind_channels`) and the constants CHANNELS,
// CORES and MEMORY_BYTES. Memory is one flat array; channel c holds every CHANNELS-th 4 KiB page.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <sys/mman.h>

#include "ports.h"
#include "verilated.h"

namespace {

constexpr unsigned BEAT = 16;
constexpr unsigned OKAY = 0, SLVERR = 2, DECERR = 3;

struct Options {
    uint32_t latency = 20;         // cycles from an accepted address to its first beat or response
    uint32_t beats_per_1024 = 1024;  // bandwidth: beats a channel moves in 1024 cycles, each way
    uint32_t stall_seed = 0;       // not 0: random pauses on every handshake
};

struct Read {
    uint64_t addr, ready_at;
    uint32_t id, beats;
};
struct Write {
    uint64_t addr;
    uint32_t id, beats;
    bool bad;
};
struct Response {
    uint64_t ready_at;
    uint32_t id;
    bool bad;
};

struct Channel {
    std::deque<Read> reads;
    std::deque<Write> writes;
    std::deque<Response> responses;
    uint32_t read_credit = 0, write_credit = 0;
    bool r_held = false, b_held = false;
};

struct Chip {
    VerilatedContext context;
    Vchip *top;
    Options options;
    uint8_t *memory;
    Ports ports[CHANNELS];
    Channel channels[CHANNELS];
    uint64_t cycles = 0;
    uint64_t beats_read = 0, beats_written = 0;
    uint32_t random;

    explicit Chip(const Options &o) : options(o), random(o.stall_seed) {
        memory = static_cast<uint8_t *>(
            mmap(nullptr, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (memory == MAP_FAILED) {
            memory = nullptr;
            top = nullptr;
            return;
        }
        top = new Vchip(&context);
        bind_channels(top, ports);
        reset();
    }

    ~Chip() {
        if (top) {
            top->final();
            delete top;
        }
        if (memory) munmap(memory, MEMORY_BYTES);
    }

    bool pause() {  // xorshift32; one handshake in four waits
        if (!options.stall_seed) return false;
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        return (random & 3) == 0;
    }

    static uint64_t global(unsigned c, uint64_t local) {
        return (((local >> 12) * CHANNELS + c) << 12) | (local & 0xFFF);
    }

    void reset() {
        top->rst = 1;
        changed = true;
        top->clk = 0;
        top->s_axil___05Fawvalid = top->s_axil___05Fwvalid = top->s_axil___05Farvalid = 0;
        top->s_axil___05Fbready = top->s_axil___05Frready = 0;
        for (unsigned c = 0; c < CHANNELS; c++) channels[c] = Channel{};
        for (int i = 0; i < 4; i++) step();
        top->rst = 0;
        changed = true;
        step();  // AXI: no VALID in the first cycle out of reset
        cycles = 0;
        beats_read = beats_written = 0;
    }

    // Inputs differ from those of the last evaluation.
    bool changed = true;

    template <typename T, typename V>
    void put(T &input, V value) {
        if (input != T(value)) {
            input = T(value);
            changed = true;
        }
    }

    void drive(unsigned c) {
        Channel &ch = channels[c];
        Ports &p = ports[c];
        ch.read_credit = ch.read_credit < 1024 ? ch.read_credit + options.beats_per_1024 : ch.read_credit;
        ch.write_credit = ch.write_credit < 1024 ? ch.write_credit + options.beats_per_1024 : ch.write_credit;
        put(*p.arready, ch.reads.size() < 16 && !pause());
        put(*p.awready, ch.writes.size() < 16 && !pause());
        put(*p.wready, ch.write_credit >= 1024 && !pause());
        bool r = !ch.reads.empty() && ch.reads.front().ready_at <= cycles && ch.read_credit >= 1024;
        bool fresh = !ch.r_held && r && !pause();
        ch.r_held = ch.r_held || fresh;
        put(*p.rvalid, ch.r_held);
        if (fresh) {  // once: a beat that waits does not change, even if its bytes are written meanwhile
            const Read &read = ch.reads.front();
            uint64_t at = global(c, read.addr & ~uint64_t(BEAT - 1));
            bool bad = at + BEAT > MEMORY_BYTES;
            put(*p.rid, read.id);
            put(*p.rlast, read.beats == 1);
            put(*p.rresp, bad ? DECERR : OKAY);
            if (bad) memset(p.rdata, 0, BEAT);
            else memcpy(p.rdata, memory + at, BEAT);
            changed = true;
        }
        ch.b_held = ch.b_held || (!ch.responses.empty() && ch.responses.front().ready_at <= cycles && !pause());
        put(*p.bvalid, ch.b_held);
        if (ch.b_held) {
            put(*p.bid, ch.responses.front().id);
            put(*p.bresp, ch.responses.front().bad ? DECERR : OKAY);
        }
    }

    void sample(unsigned c) {
        Channel &ch = channels[c];
        Ports &p = ports[c];
        if (*p.rvalid && *p.rready) {
            Read &read = ch.reads.front();
            beats_read++;
            ch.read_credit -= 1024;
            ch.r_held = false;
            read.addr += BEAT;
            if (--read.beats == 0) ch.reads.pop_front();
        }
        if (*p.bvalid && *p.bready) {
            ch.b_held = false;
            ch.responses.pop_front();
        }
        if (*p.arvalid && *p.arready) ch.reads.push_back({*p.araddr, cycles + options.latency, uint32_t(*p.arid), *p.arlen + 1u});
        if (*p.awvalid && *p.awready) ch.writes.push_back({*p.awaddr, uint32_t(*p.awid), *p.awlen + 1u, false});
        if (*p.wvalid && *p.wready) early.at(c).push_back(beat(p));
        while (!ch.writes.empty() && !early.at(c).empty()) {
            Write &write = ch.writes.front();
            Beat b = early.at(c).front();
            early.at(c).pop_front();
            uint64_t at = global(c, write.addr & ~uint64_t(BEAT - 1));
            if (at + BEAT > MEMORY_BYTES) write.bad = true;
            else
                for (unsigned i = 0; i < BEAT; i++)
                    if (b.strb >> i & 1) memory[at + i] = b.data[i];
            beats_written++;
            ch.write_credit = ch.write_credit >= 1024 ? ch.write_credit - 1024 : 0;
            write.addr += BEAT;
            if (b.last != (write.beats == 1)) protocol_errors++;
            if (--write.beats == 0) {
                ch.responses.push_back({cycles + options.latency, write.id, write.bad});
                ch.writes.pop_front();
            }
        }
    }

    struct Beat {
        uint8_t data[BEAT];
        uint32_t strb;
        bool last;
    };
    struct Early {  // W beats may come before their AW
        std::deque<Beat> q[CHANNELS];
        std::deque<Beat> &at(unsigned c) { return q[c]; }
    } early;
    uint64_t protocol_errors = 0;

    static Beat beat(Ports &p) {
        Beat b;
        memcpy(b.data, p.wdata, BEAT);
        b.strb = *p.wstrb;
        b.last = *p.wlast;
        return b;
    }

    void step() {
        for (unsigned c = 0; c < CHANNELS; c++) drive(c);
        // The evaluation of the last clock edge has seen all inputs that have not changed since.
        if (changed) top->eval();
        changed = false;
        if (!top->rst)
            for (unsigned c = 0; c < CHANNELS; c++) sample(c);
        aw_taken = top->s_axil___05Fawvalid && top->s_axil___05Fawready;
        w_taken = top->s_axil___05Fwvalid && top->s_axil___05Fwready;
        ar_taken = top->s_axil___05Farvalid && top->s_axil___05Farready;
        b_taken = top->s_axil___05Fbvalid && top->s_axil___05Fbready;
        r_taken = top->s_axil___05Frvalid && top->s_axil___05Frready;
        bresp = top->s_axil___05Fbresp;
        rresp = top->s_axil___05Frresp;
        rdata = top->s_axil___05Frdata;
        top->clk = !top->clk;  // registers take a step at either edge
        top->eval();
        cycles++;
    }

    bool aw_taken = false, w_taken = false, ar_taken = false, b_taken = false, r_taken = false;
    uint32_t bresp = 0, rresp = 0, rdata = 0;

    int write_register(uint32_t addr, uint32_t value) {
        top->s_axil___05Fawaddr = addr;
        top->s_axil___05Fwdata = value;
        top->s_axil___05Fwstrb = 0xF;
        top->s_axil___05Fawvalid = top->s_axil___05Fwvalid = 1;
        top->s_axil___05Fbready = 1;
        for (int i = 0; i < 10000; i++) {
            changed = true;
            step();
            if (aw_taken) top->s_axil___05Fawvalid = 0;
            if (w_taken) top->s_axil___05Fwvalid = 0;
            if (b_taken) {
                top->s_axil___05Fbready = 0;
                changed = true;
                return bresp;
            }
        }
        return -1;
    }

    int read_register(uint32_t addr, uint32_t *value) {
        top->s_axil___05Faraddr = addr;
        top->s_axil___05Farvalid = 1;
        top->s_axil___05Frready = 1;
        for (int i = 0; i < 10000; i++) {
            changed = true;
            step();
            if (ar_taken) top->s_axil___05Farvalid = 0;
            if (r_taken) {
                top->s_axil___05Frready = 0;
                changed = true;
                *value = rdata;
                return rresp;
            }
        }
        return -1;
    }
};

}  // namespace

extern "C" {

// Memory channel latency in cycles, beats per 1024 cycles and channel, seed of random stalls (0: none). Null when out of memory.
void *tesela_new(uint32_t latency, uint32_t beats_per_1024, uint32_t stall_seed) {
    Chip *chip = new Chip(Options{latency, beats_per_1024, stall_seed});
    if (!chip->memory) {
        delete chip;
        return nullptr;
    }
    return chip;
}
void tesela_free(void *chip) { delete static_cast<Chip *>(chip); }
uint8_t *tesela_memory(void *chip) { return static_cast<Chip *>(chip)->memory; }
void tesela_reset(void *chip) { static_cast<Chip *>(chip)->reset(); }
uint64_t tesela_cycles(void *chip) { return static_cast<Chip *>(chip)->cycles; }
uint64_t tesela_beats_read(void *chip) { return static_cast<Chip *>(chip)->beats_read; }
uint64_t tesela_beats_written(void *chip) { return static_cast<Chip *>(chip)->beats_written; }
uint64_t tesela_protocol_errors(void *chip) { return static_cast<Chip *>(chip)->protocol_errors; }

// AXI response of the host port (0 OKAY, 2 SLVERR), or -1 when it did not answer within 10,000 cycles.
int tesela_write(void *chip, uint32_t addr, uint32_t value) { return static_cast<Chip *>(chip)->write_register(addr, value); }
int tesela_read(void *chip, uint32_t addr, uint32_t *value) { return static_cast<Chip *>(chip)->read_register(addr, value); }

void tesela_step(void *chip, uint64_t cycles) {
    Chip *c = static_cast<Chip *>(chip);
    for (uint64_t i = 0; i < cycles; i++) c->step();
}
// Steps until no core runs, an error shows, or `limit` cycles have passed; returns the cycles stepped.
uint64_t tesela_run(void *chip, uint64_t limit) {
    Chip *c = static_cast<Chip *>(chip);
    uint64_t n = 0;
    while (n < limit && c->top->running) {
        c->step();
        n++;
    }
    return n;
}
uint32_t tesela_running(void *chip) { return static_cast<Chip *>(chip)->top->running; }
uint32_t tesela_error(void *chip) { return static_cast<Chip *>(chip)->top->error; }
}
