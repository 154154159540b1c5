// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

const (
	// linePort is the destination of the packets whose lines are awaited, and lineFirst the first port of their source.
	linePort, lineFirst = 7200, 61000
	linePorts           = 4000
	// linePause is the pause between two packets, and lineTime how long a line may take.
	linePause, lineTime = 23 * time.Millisecond, 30 * time.Second
)

// measureLines measures the time from a packet to its line, without other flows and with 1,000 a second.
func (b *bench) measureLines(ctx context.Context) error {
	if b.cfg.Lines == 0 {
		return nil
	}
	load, err := b.node.startLoad(b.cfg.Self)
	if err != nil {
		return err
	}
	defer load.Stop()
	for _, rate := range []int{0, 1000} {
		b.cfg.Log.Info("measuring the time to a line", "flows", rate)
		if err := b.node.setLevel(ctx, flow.LevelOff); err != nil {
			return err
		}
		if err := b.measureLinesAt(ctx, rate, load); err != nil {
			return fmt.Errorf("lines of weft observe: %w", err)
		}
	}
	return nil
}

// printed is a line of weft observe.
type printed struct {
	port uint16
	at   time.Time
}

func (b *bench) measureLinesAt(ctx context.Context, rate int, load *load) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.cfg.Weft, "observe", "--state-dir", b.node.path("state"), "--follow", "-o", "jsonl")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := make(chan printed, 1<<16)
	go readLines(out, lines)
	defer func() {
		cancel()
		for range lines { // until it has ended
		}
		_ = cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, failed.String())
		}
	}()
	sink, err := listen(b.node.pods[1].ns, netip.AddrPortFrom(b.node.pods[1].addr, linePort))
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close() }()
	others := make(chan error, 1)
	if rate > 0 {
		span := time.Duration(b.cfg.Lines)*linePause + 2*time.Second
		go func() { _, err := load.run(ctx, rate, span); others <- err }()
	} else {
		others <- nil
	}
	// The command is there when it prints a packet.
	port, first := uint16(lineFirst), time.Now()
	for seen := false; !seen; {
		if time.Since(first) > lineTime {
			return errors.New("no line")
		}
		if err := b.packet(port); err != nil {
			return err
		}
		select {
		case _, seen = <-lines:
			if !seen {
				return errors.New("command has ended")
			}
		case <-time.After(linePause):
		}
		port++
	}
	sent := map[uint16]time.Time{}
	took := func(l printed) {
		if at, ok := sent[l.port]; ok {
			b.lines[rate] = append(b.lines[rate], float64(l.at.Sub(at).Microseconds())/1000)
			delete(sent, l.port)
		}
	}
	for i := range b.cfg.Lines {
		p := uint16(lineFirst + (int(port)-lineFirst+i)%linePorts)
		sent[p] = time.Now()
		if err := b.packet(p); err != nil {
			return err
		}
		for pause := time.After(linePause); pause != nil; {
			select {
			case l := <-lines:
				took(l)
			case <-pause:
				pause = nil
			}
		}
	}
	for late := time.After(lineTime); len(sent) > 0; {
		select {
		case l, ok := <-lines:
			if !ok {
				return errors.New("command has ended")
			}
			took(l)
		case <-late:
			return fmt.Errorf("%d of %d packets have no line", len(sent), b.cfg.Lines)
		}
	}
	return <-others
}

// readLines reads the lines of packets from a until EOF.
func readLines(out io.Reader, to chan<- printed) {
	defer close(to)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		at := time.Now()
		var r flow.Record
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Kind == flow.New && r.To.Port == linePort && r.From.Name == "default/a" {
			to <- printed{r.From.Port, at}
		}
	}
}

// packet sends one datagram from a port of the first pod.
func (b *bench) packet(port uint16) error {
	return b.node.pods[0].ns.Do(func() error {
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.node.pods[1].addr, linePort))
		c, err := net.DialUDP("udp", &net.UDPAddr{Port: int(port)}, to)
		if err != nil {
			return err
		}
		_, err = c.Write([]byte{0})
		return errors.Join(err, c.Close())
	})
}
