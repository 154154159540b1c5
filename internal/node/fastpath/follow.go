// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/kernel/watch"
)

// keep follows changes.
func (f *FastPath) keep(ctx context.Context, files *sysctl.Files) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := watch.Events(ctx, f.cfg.NS, func(e watch.Event) bool { return e.Kind != watch.Neigh })
	if err != nil {
		return fmt.Errorf("fast path: %w", err)
	}
	rules := make(chan struct{}, 1)
	ended, err := watch.Changes(ctx, f.cfg.NS, watch.Scope{}, func(c watch.Change) {
		if c.Kind == watch.Rule || c.Kind == watch.Queue || c.Kind == watch.Setting || c.Kind == watch.Lost {
			select {
			case rules <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return fmt.Errorf("fast path: %w", err)
	}
	commits, err := watch.Commits(ctx, f.cfg.NS, f.port)
	if err != nil {
		return fmt.Errorf("fast path: %w", err)
	}
	defer func() {
		cancel()
		<-ended
	}()
	l := loop{f: f, files: files, due: f.cfg.After(0)}
	l.settings()
	tick, again := f.cfg.After(check), f.cfg.After(renew)
	var empty <-chan time.Time
	if f.way == Flowtable { // its flows would outlive rules that are not notified of
		empty = f.cfg.After(interval)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return notNotified(ctx)
		case _, open := <-commits:
			if !open {
				return notNotified(ctx)
			}
			f.Flush()
			if f.way == Flowtable { // a guest may have begun to use another MAC address
				l.due = f.cfg.After(0)
			}
		case _, open := <-events:
			if !open {
				return notNotified(ctx)
			}
			f.Flush()
			l.due = f.cfg.After(quiet)
		case <-rules:
			f.Flush()
			l.due = f.cfg.After(quiet)
		case <-tick:
			tick = f.cfg.After(check)
			l.settings()
			if v := f.cfg.Records.Version(); v != l.version {
				l.version, l.due = v, f.cfg.After(quiet)
			}
		case <-again:
			again = f.cfg.After(renew)
			if l.due == nil {
				l.due = f.cfg.After(0)
			}
		case <-empty:
			empty = f.cfg.After(interval)
			f.Flush()
		case <-l.due:
			l.due = nil
			l.links(ctx)
		}
	}
}

// notNotified ends the fast path: without the kernel's notifications flows would outlive the rules that allowed them.
func notNotified(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("fast path: the kernel's notifications have ended")
}

// loop is the state of keep.
type loop struct {
	f       *FastPath
	files   *sysctl.Files
	due     <-chan time.Time // the links are to be compared
	version uint64           // of the records
	logged  string
}

// settings reads the settings of the kernel, sets the one that the path needs, and decides whether packets are redirected.
func (l *loop) settings() {
	want, why := l.decide()
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want = want
	if why != "" {
		f.reason = why
	}
	f.enableLocked()
	if why != l.logged {
		f.log.Info("fast path for established flows", "used", want.on, "reason", why)
		l.logged = why
	}
}

func (l *loop) decide() (want enabled, why string) {
	if l.f.way == Flowtable { // the kernel counts its packets and accepts those outside of the window
		values, err := l.files.Read(slices.Concat(offloadTimeouts()...))
		if err != nil {
			return want, "timeouts of the flowtable: " + err.Error()
		}
		why = early(values)
		return enabled{on: why == ""}, why
	}
	tcp, udp := timeouts()
	values, err := l.files.Read(slices.Concat([]string{Liberal, accounting}, tcp, udp))
	if err != nil {
		return want, "settings of conntrack: " + err.Error()
	}
	shortest := func(names []string) time.Duration {
		out := interval
		for _, name := range names {
			if seconds, err := strconv.Atoi(values[name].Text); err == nil && !values[name].Missing {
				out = min(out, time.Duration(seconds)*time.Second/part)
			}
		}
		return out
	}
	want = enabled{tcp: shortest(tcp), udp: shortest(udp)}
	if v := values[accounting]; !v.Missing && v.Text == "1" {
		return want, "net.netfilter.nf_conntrack_acct is 1: the packets of connections are counted"
	}
	if v := values[Liberal]; !v.Missing && v.Text != "1" {
		if err := l.f.cfg.Settings.Keep(Liberal, v.Text); err != nil {
			return want, err.Error()
		}
		if err := l.files.Write([]sysctl.Pair{{Name: Liberal, Value: "1", IfPresent: true}}); err != nil {
			return want, err.Error()
		}
	}
	want.on = true
	return want, ""
}

// early returns why a flow's entry of conntrack would expire early, empty if it would not: when the flow leaves the
// flowtable, the kernel subtracts the flowtable's own timeout from that of conntrack. The next packet would be that of
// a new connection, which rules may not allow in its direction.
func early(values map[string]sysctl.Value) string {
	seconds := func(name string) int {
		n, err := strconv.Atoi(values[name].Text)
		if err != nil { // it is missing or hidden
			return 0
		}
		return n
	}
	for _, pair := range offloadTimeouts() {
		flowtable, tracked := seconds(pair[0]), seconds(pair[1])
		if flowtable > 0 && tracked > 0 && tracked < enough*flowtable {
			return fmt.Sprintf("%s is %d: an entry of conntrack loses %d of these seconds when its flow leaves the flowtable; "+
				"set it to %d or more, or %s to %d or less", strings.ReplaceAll(pair[1], "/", "."), tracked, flowtable, enough*flowtable,
				strings.ReplaceAll(pair[0], "/", "."), tracked/enough)
		}
	}
	return ""
}
