// Image in, image out for Icarus: memory channels, host port driver, no Python in the loop.
//
// Parameters come as defines: CHANNELS, CORES, MEMORY_BYTES, WORDS (16-byte words that the run may touch), ID_WIDTH, LATENCY, and the
// generated file `connect.vh` that places the chip. Files (plusargs): +memory= hex of the memory, +writes= {address, data} pairs of
// registers to write, +reads= addresses to read at the end, +values= where the values go, +dump= result memory, +first= +last= its range.
`timescale 1ns / 1ps

module axi_channel #(
    parameter NUMBER = 0
) (
    input clk,
    input rst,
    input [`ID_WIDTH-1:0] awid,
    input [63:0] awaddr,
    input [7:0] awlen,
    input awvalid,
    output awready,
    input [127:0] wdata,
    input [15:0] wstrb,
    input wlast,
    input wvalid,
    output wready,
    output reg [`ID_WIDTH-1:0] bid,
    output reg [1:0] bresp,
    output reg bvalid,
    input bready,
    input [`ID_WIDTH-1:0] arid,
    input [63:0] araddr,
    input [7:0] arlen,
    input arvalid,
    output arready,
    output reg [`ID_WIDTH-1:0] rid,
    output reg [127:0] rdata,
    output reg [1:0] rresp,
    output reg rlast,
    output reg rvalid,
    input rready
);
    // Requests wait in rings of 16; `at` is the cycle from which a burst may answer.
    reg [`ID_WIDTH-1:0] r_id[0:15];
    reg [63:0] r_addr[0:15];
    reg [8:0] r_left[0:15];
    reg [63:0] r_at[0:15];
    reg [3:0] r_head, r_tail;
    reg [`ID_WIDTH-1:0] w_id;
    reg [63:0] w_addr;
    reg w_busy, w_bad, w_done;
    reg [63:0] w_at, now;
    reg [63:0] where;
    reg [127:0] merged;
    integer i;

    function [63:0] word;  // index into the chip's memory of a channel's local address
        input [63:0] offset;
        word = ((((offset >> 12) * `CHANNELS + NUMBER) << 12) | (offset & 64'hFF0)) >> 4;
    endfunction

    assign arready = !rst && (r_tail + 4'd1 != r_head);
    assign awready = !rst && !w_busy;
    assign wready = w_busy && !w_done;

    always @(posedge clk) begin
        now <= now + 1;
        if (rst) begin
            r_head <= 0;
            r_tail <= 0;
            rvalid <= 0;
            bvalid <= 0;
            w_busy <= 0;
            w_done <= 0;
            w_bad <= 0;
            now <= 0;
        end else begin
            if (arvalid && arready) begin
                r_id[r_tail] <= arid;
                r_addr[r_tail] <= araddr;
                r_left[r_tail] <= arlen + 9'd1;
                r_at[r_tail] <= now + `LATENCY;
                r_tail <= r_tail + 4'd1;
            end
            if (!rvalid || rready) begin
                rvalid <= 0;
                if (r_head != r_tail && r_at[r_head] <= now) begin
                    where = word(r_addr[r_head]);
                    rvalid <= 1;
                    rid <= r_id[r_head];
                    rlast <= r_left[r_head] == 1;
                    rresp <= where < `WORDS ? 2'd0 : 2'd3;
                    rdata <= where < `WORDS ? image_tb.memory[where] : 128'd0;
                    r_addr[r_head] <= r_addr[r_head] + 16;
                    r_left[r_head] <= r_left[r_head] - 9'd1;
                    if (r_left[r_head] == 1) r_head <= r_head + 4'd1;
                end
            end
            if (awvalid && awready) begin
                w_busy <= 1;
                w_bad <= 0;
                w_id <= awid;
                w_addr <= awaddr;
            end
            if (wvalid && wready) begin
                where = word(w_addr);
                if (where < `WORDS) begin
                    merged = image_tb.memory[where];
                    for (i = 0; i < 16; i = i + 1) if (wstrb[i]) merged[8*i+:8] = wdata[8*i+:8];
                    image_tb.memory[where] = merged;
                end else w_bad <= 1;
                w_addr <= w_addr + 16;
                if (wlast) begin
                    w_done <= 1;
                    w_at   <= now + `LATENCY;
                end
            end
            if (w_done && !bvalid && w_at <= now) begin
                bvalid <= 1;
                bid <= w_id;
                bresp <= w_bad ? 2'd3 : 2'd0;
            end
            if (bvalid && bready) begin
                bvalid <= 0;
                w_busy <= 0;
                w_done <= 0;
            end
        end
    end
endmodule

module image_tb;
    reg clk = 0, rst = 1;
    reg [127:0] memory[0:`WORDS-1];
    reg [23:0] awaddr, araddr;
    reg [31:0] wdata;
    reg awvalid = 0, wvalid = 0, arvalid = 0;
    wire awready, wready, bvalid, arready, rvalid;
    wire [1:0] bresp, rresp;
    wire [31:0] rdata;
    wire [`CORES-1:0] running, error;

    `include "connect.vh"

    always #5 clk = !clk;

    reg [63:0] writes[0:4095];
    reg [31:0] reads[0:4095];
    reg [8*1024-1:0] path;
    integer n_writes, n_reads, first, last, i, values;
    reg [63:0] cycles, limit, every;

    task write_register(input [23:0] address, input [31:0] data);
        begin
            @(negedge clk);
            awaddr  = address;
            wdata   = data;
            awvalid = 1;
            wvalid  = 1;
            while (awvalid || wvalid) begin : handshake
                reg aw, w;
                @(posedge clk);
                aw = awvalid && awready;
                w  = wvalid && wready;
                @(negedge clk);
                if (aw) awvalid = 0;
                if (w) wvalid = 0;
            end
            while (!bvalid) @(negedge clk);
            if (bresp != 0) $display("ERROR register write %h answered %d", address, bresp);
            @(negedge clk);
        end
    endtask

    task read_register(input [23:0] address);
        begin
            @(negedge clk);
            araddr  = address;
            arvalid = 1;
            while (arvalid) begin : handshake
                reg ar;
                @(posedge clk);
                ar = arready;
                @(negedge clk);
                if (ar) arvalid = 0;
            end
            while (!rvalid) @(negedge clk);
            $fdisplay(values, "%h %d", rdata, rresp);
            @(negedge clk);
        end
    endtask

    initial begin
        if (!$value$plusargs("memory=%s", path)) $finish;
        $readmemh(path, memory);
        if (!$value$plusargs("n_writes=%d", n_writes)) n_writes = 0;
        if (!$value$plusargs("n_reads=%d", n_reads)) n_reads = 0;
        if ($value$plusargs("writes=%s", path)) $readmemh(path, writes, 0, n_writes - 1);
        if ($value$plusargs("reads=%s", path)) $readmemh(path, reads, 0, n_reads - 1);
        if (!$value$plusargs("limit=%d", limit)) limit = 1000000;
        if (!$value$plusargs("every=%d", every)) every = 1000;
        repeat (4) @(negedge clk);
        rst = 0;
        @(negedge clk);  // AXI: no VALID in the first cycle out of reset
        for (i = 0; i < n_writes; i = i + 1) write_register(writes[i][55:32], writes[i][31:0]);
        cycles = 0;
        while (running != 0 && cycles < limit) begin
            @(negedge clk);
            cycles = cycles + 1;
            if (cycles % every == 0) begin
                $display("CYCLES %0d", cycles);
                $fflush;
            end
        end
        $display("END %0d %0d %0d", cycles, running, error);
        if ($value$plusargs("values=%s", path)) begin
            values = $fopen(path, "w");
            for (i = 0; i < n_reads; i = i + 1) read_register(reads[i][23:0]);
            $fclose(values);
        end
        if ($value$plusargs("first=%d", first) && $value$plusargs("last=%d", last) && $value$plusargs("dump=%s", path))
            $writememh(path, memory, first, last);
        $finish;
    end
endmodule
