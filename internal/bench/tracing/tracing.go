// SPDX-License-Identifier: Apache-2.0

// Package tracing measures what a trace costs the connections that it does not follow: the rate of TCP connections
// through a router without a trace, with its rules, and with its program that reports dropped packets.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/bench/rounds"
	"github.com/weft-net/weft/internal/kernel/drops"
	"github.com/weft-net/weft/internal/kernel/trace"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// Config is a measurement.
type Config struct {
	N    int           // rounds
	Span time.Duration // of one kind in a round
	Seed uint64        // of the order of kinds
}

// Check returns an error about an invalid value.
func (c Config) Check() error {
	switch {
	case c.N < 1:
		return model.OutOfRange("-n", c.N, "1 or more", 15)
	case c.Span < 10*time.Millisecond:
		return model.OutOfRange("--span", c.Span, "10ms or more", "200ms")
	}
	return nil
}

// kinds are what is compared; the first is the baseline.
func kinds() []string { return []string{"nothing", "rules", "program", "both"} }

// Row is the rate of connections with a kind, and its ratio to nothing.
type Row struct {
	Kind   string  `json:"kind"`
	N      int     `json:"n"`
	Median float64 `json:"median"` // connections per second
	Ratio  float64 `json:"ratio"`  // median, least and greatest of the rounds' quotients
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// Report is the result of a measurement.
type Report struct {
	Rows  []Row    `json:"rows"`
	Notes []string `json:"notes"`
}

// Text prints the report.
func (r Report) Text(w io.Writer) error {
	fmt.Fprintf(w, "%-8s  %13s  %s\n", "TRACE", "CONNECTIONS/S", "RATIO (n)")
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%-8s  %13.0f  %s (%d)\n", row.Kind, row.Median, rounds.Ratio(row.Ratio, row.Low, row.High), row.N)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, n)
	}
	return nil
}

// Run measures.
func Run(ctx context.Context, c Config) (report Report, err error) {
	w, err := newWorld(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	rates := map[string][]float64{}
	random := rand.New(rand.NewPCG(c.Seed, 0))
	for range c.N {
		all := kinds()
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, kind := range all {
			rate, err := w.measure(ctx, kind, c.Span)
			if err != nil {
				return report, fmt.Errorf("%s: %w", kind, err)
			}
			rates[kind] = append(rates[kind], rate)
		}
	}
	for _, kind := range kinds() {
		row := Row{Kind: kind, N: c.N}
		row.Median, _, _ = rounds.Spread(rates[kind])
		row.Ratio, row.Low, row.High = rounds.Spread(rounds.Quotients(rates[kind], rates["nothing"]))
		report.Rows = append(report.Rows, row)
	}
	report.Notes = []string{
		"Connections of one client through one router; the trace matches none of them. Ratios are medians of rounds.",
	}
	return report, nil
}

// world is a client, a router and a server.
type world struct {
	dir    string
	places []*netns.NS // the router is in the middle
	listen net.Listener
}

const server = "198.18.2.2:8080"

func newWorld(ctx context.Context) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.dir, err = os.MkdirTemp("", "weft-bench-"); err != nil {
		return w, err
	}
	for _, name := range []string{"client", "router", "server"} {
		ns, err := netns.New(filepath.Join(w.dir, name))
		if err != nil {
			return w, err
		}
		w.places = append(w.places, ns)
	}
	for i, ns := range []*netns.NS{w.places[0], w.places[2]} {
		n := fmt.Sprint(i + 1)
		for _, c := range []struct {
			at   *netns.NS
			line string
		}{
			{w.places[1], "link add eth" + n + " type veth peer name eth0 netns " + ns.Path()},
			{w.places[1], "link set eth" + n + " up"},
			{w.places[1], "addr add 198.18." + n + ".1/24 dev eth" + n},
			{ns, "link set eth0 up"},
			{ns, "addr add 198.18." + n + ".2/24 dev eth0"},
			{ns, "route add default via 198.18." + n + ".1"},
		} {
			if err := run(ctx, c.at, append([]string{"ip"}, strings.Fields(c.line)...)...); err != nil {
				return w, err
			}
		}
	}
	const forward = "/proc/sys/net/ipv4/ip_forward"
	if err := w.places[1].Do(func() error { return os.WriteFile(forward, []byte("1"), 0o644) }); err != nil {
		return w, fmt.Errorf("router: %w", err)
	}
	err = w.places[2].Do(func() (err error) {
		w.listen, err = net.Listen("tcp", server)
		return err
	})
	if err != nil {
		return w, err
	}
	go func() {
		for {
			c, err := w.listen.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, c) // until the client resets it
				_ = c.Close()
			}()
		}
	}()
	return w, nil
}

func run(ctx context.Context, ns *netns.NS, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := ns.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out.String())
	}
	return nil
}

func (w *world) close() error {
	var errs []error
	if w.listen != nil {
		errs = append(errs, w.listen.Close())
	}
	for _, ns := range w.places {
		errs = append(errs, ns.Close(), netns.Remove(ns.Path()))
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// measure returns the rate of connections while a trace of a kind runs.
func (w *world) measure(ctx context.Context, kind string, span time.Duration) (rate float64, err error) {
	probe := trace.Probe{
		Protocol: unix.IPPROTO_TCP,
		Cookie:   1,
		From:     netip.MustParseAddrPort("192.0.2.1:1"),
		To:       netip.MustParseAddrPort("192.0.2.2:2"),
	}
	const tunnel = 8472
	var closers []io.Closer
	defer func() {
		for _, c := range closers {
			err = errors.Join(err, c.Close())
		}
	}()
	if kind == "rules" || kind == "both" {
		for _, ns := range w.places {
			s, err := trace.Start(ctx, ns, probe.Matches(tunnel))
			if err != nil {
				return 0, err
			}
			closers = append(closers, s)
		}
	}
	if kind == "program" || kind == "both" {
		s, err := drops.Start(drops.Filter{Addr: probe.From.Addr(), TunnelPort: tunnel}, nil)
		if err != nil {
			return 0, err
		}
		closers = append(closers, s)
	}
	err = w.places[0].Do(func() (err error) {
		rate, err = connect(ctx, span)
		return err
	})
	return rate, err
}

// connect makes connections for a time, one after another, and returns how many in a second. Each is reset, so that no
// port stays in use. The calls are made on this thread: those of package net would wait in the runtime, too.
func connect(ctx context.Context, span time.Duration) (rate float64, err error) {
	n, begun := 0, time.Now()
	for time.Since(begun) < span {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, fmt.Errorf("socket: %w", err)
		}
		at := netip.MustParseAddrPort(server)
		err = errors.Join(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
			unix.Connect(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}), unix.Close(fd))
		if err != nil {
			return 0, fmt.Errorf("connection %d: %w", n, err)
		}
		n++
	}
	return float64(n) / time.Since(begun).Seconds(), nil
}
