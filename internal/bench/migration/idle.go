// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/guestimage"
)

// MaxIdle is the greatest number of VMs of RunIdle.
const MaxIdle = 200

// IdleConfig configures RunIdle.
type IdleConfig struct {
	// Agent is the program weft-agent, BinDir the directory of weft-cni, Speaker the program weft-guest.
	Agent, BinDir, Speaker string
	Image                  guestimage.Image
	// VMs is the number of VMs, 1 to MaxIdle. They are of the bindings direct and masquerade in turns.
	VMs int
	// Span is how long the agent is measured, without a VM and with all of them.
	Span time.Duration
	// Settle is the time before that, for what has begun to end.
	Settle time.Duration
	// OnLease is called when a VM has its lease; optional.
	OnLease func(n int, took time.Duration)
}

// Check validates the configuration.
func (cfg IdleConfig) Check() error {
	if cfg.VMs < 1 || cfg.VMs > MaxIdle {
		return model.OutOfRange("--idle", cfg.VMs, fmt.Sprintf("1 to %d", MaxIdle), 20)
	}
	if cfg.Span < 100*time.Millisecond || cfg.Span > time.Hour {
		return model.OutOfRange("--idle-span", cfg.Span, "100ms to 1h", "1m")
	}
	return nil
}

// IdleRow is the agent in one span of time.
type IdleRow struct {
	What string `json:"what"`
	// VMs is how many ran at its end.
	VMs int `json:"vms"`
	// Seconds is the length of the span, CPU the agent's CPU time in it in milliseconds, Percent its share of one processor.
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
	Percent float64 `json:"percent"`
	// RSS is the agent's resident memory at the end, in MiB.
	RSS float64 `json:"rss"`
}

// IdleReport is the result of RunIdle.
type IdleReport struct {
	Rows  []IdleRow `json:"rows"`
	Notes []string  `json:"notes"`
}

// RunIdle measures an agent while VMs are idle: guests under QEMU that have a lease and run no program.
func RunIdle(ctx context.Context, cfg IdleConfig) (r IdleReport, err error) {
	if err := cfg.Check(); err != nil {
		return r, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := newWorld(ctx, Config{
		Agent: cfg.Agent, BinDir: cfg.BinDir, Speaker: cfg.Speaker, Image: cfg.Image, Encapsulation: "vxlan",
		Log: slog.New(slog.DiscardHandler),
	}, 1)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if r.Rows, err = w.measureIdle(ctx, cfg); err != nil {
		return r, fmt.Errorf("%w%s", err, w.logTails())
	}
	r.Notes = []string{
		"cpu: user and system time of the agent's process, in milliseconds; percent: of one processor",
		"the guests are emulated (TCG), of the bindings direct and masquerade in turns; each has its lease and runs no program",
	}
	return r, nil
}

func (w *world) measureIdle(ctx context.Context, cfg IdleConfig) (rows []IdleRow, err error) {
	n := w.nodes[0]
	span := func(what string, vms int, act func() error) error {
		row, err := n.during(what, act)
		row.VMs = vms
		rows = append(rows, row)
		return err
	}
	wait := func(d time.Duration) func() error {
		return func() error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(d):
				return nil
			}
		}
	}
	var guests []*guest
	defer func() {
		for _, g := range guests {
			err = errors.Join(err, g.end(context.WithoutCancel(ctx)))
		}
	}()
	boot := func() error {
		for i := range cfg.VMs {
			began := time.Now()
			g, err := w.boot(ctx, n, i)
			if g != nil {
				guests = append(guests, g)
			}
			if err != nil {
				return fmt.Errorf("VM %d of %d: %w", i+1, cfg.VMs, err)
			}
			if cfg.OnLease != nil {
				cfg.OnLease(i, time.Since(began))
			}
		}
		return nil
	}
	if err := wait(cfg.Settle)(); err != nil {
		return nil, err
	}
	if err := span("no VM", 0, wait(cfg.Span)); err != nil {
		return nil, err
	}
	if err := span("VMs boot", cfg.VMs, boot); err != nil {
		return nil, err
	}
	if err := wait(cfg.Settle)(); err != nil {
		return nil, err
	}
	if err := span("VMs idle", cfg.VMs, wait(cfg.Span)); err != nil {
		return nil, err
	}
	for i, g := range guests { // a guest that had ended would have been idle indeed
		select {
		case <-g.qemu.Done():
			return nil, fmt.Errorf("VM %d of %d ended while it was idle: %w", i+1, cfg.VMs, g.qemu.Err())
		default:
		}
	}
	return rows, nil
}

// boot boots a VM in a pod of its own, and waits for its lease.
func (w *world) boot(ctx context.Context, n *node, i int) (*guest, error) {
	name := fmt.Sprintf("idle-%d", i+1)
	p, err := n.run(ctx, pod{namespace: namespace, name: name, vm: name})
	if err != nil {
		return nil, err
	}
	binding := model.VMDirect
	if i%2 == 1 {
		binding = model.VMMasquerade
	}
	g, err := w.start(ctx, p, binding, "")
	if err != nil {
		return nil, err
	}
	return g, g.awaitBoot(ctx)
}

// during measures the agent while act runs.
func (n *node) during(what string, act func() error) (row IdleRow, err error) {
	before, err := n.cpuTime()
	if err != nil {
		return row, err
	}
	began := time.Now()
	if err := act(); err != nil {
		return row, err
	}
	took := time.Since(began)
	after, err := n.cpuTime()
	if err != nil {
		return row, err
	}
	row = IdleRow{What: what, Seconds: took.Seconds(), CPU: float64((after - before).Microseconds()) / 1000}
	row.Percent = 100 * (after - before).Seconds() / took.Seconds()
	row.RSS, err = n.rss()
	return row, err
}

// cpuTime returns the CPU time that the agent has used.
func (n *node) cpuTime() (time.Duration, error) {
	// clock_getcpuclockid(3): the CPU clock of another process includes exited threads.
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^n.agent.Process.Pid<<3|2), &ts); err != nil {
		return 0, fmt.Errorf("CPU time of the agent: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// rss returns the agent's resident memory, in MiB.
func (n *node) rss() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.agent.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			return kb / 1024, nil
		}
	}
	return 0, errors.New("memory of the agent: VmRSS is missing")
}

// Text prints the report as a table.
func (r IdleReport) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "AGENT\tVMS\tSECONDS\tCPU\tPERCENT\tMIB")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f ms\t%.3f\t%.1f\n", x.What, x.VMs, x.Seconds, x.CPU, x.Percent, x.RSS)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}
