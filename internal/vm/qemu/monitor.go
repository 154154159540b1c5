// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
)

// Monitor speaks QMP to a machine.
type Monitor struct {
	conn   net.Conn
	events chan Event

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	err     error // why nothing is heard any more
}

// Event is what a machine says by itself: RESUME, STOP, MIGRATION, SHUTDOWN, NIC_RX_FILTER_CHANGED …
type Event struct {
	Name string
	Data json.RawMessage
	// At is when it happened, by the hypervisor's clock.
	At time.Time
}

// reply is an answer to a command.
type reply struct {
	Return json.RawMessage
	Error  *struct{ Class, Desc string }
}

// heard is a line of the monitor.
type heard struct {
	QMP       json.RawMessage `json:"QMP"`
	ID        int             `json:"id"`
	Return    json.RawMessage `json:"return"`
	Error     *struct{ Class, Desc string }
	Event     string          `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp struct{ Seconds, Microseconds int64 }
}

// kept is how many events wait for somebody to read them; older ones give way.
const kept = 256

// Dial connects to the monitor of the machine in a directory. One connection is served at a time, and who has started
// the machine has it.
func Dial(ctx context.Context, dir string) (*Monitor, error) { return monitor(ctx, dir, qmpName) }

// Control connects to the machine's second monitor, which is for others than who started it. One connection is served
// at a time.
func Control(ctx context.Context, dir string) (*Monitor, error) {
	return monitor(ctx, dir, controlName)
}

func monitor(ctx context.Context, dir, name string) (*Monitor, error) {
	conn, err := dial(ctx, dir, name)
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	q := &Monitor{conn: conn, events: make(chan Event, kept), waiting: map[int]chan reply{}}
	go q.listen()
	if _, err := q.Command(ctx, "qmp_capabilities", nil); err != nil {
		q.Close()
		return nil, err
	}
	return q, nil
}

// Events is where the machine's events come. It is closed when the monitor is.
func (q *Monitor) Events() <-chan Event { return q.events }

// Close hangs up; the machine runs on.
func (q *Monitor) Close() { _ = q.conn.Close() }

// listen gives answers to those who wait for them.
func (q *Monitor) listen() {
	dec := json.NewDecoder(q.conn)
	var err error
	for {
		var h heard
		if err = dec.Decode(&h); err != nil {
			break
		}
		switch {
		case h.Event != "":
			e := Event{Name: h.Event, Data: h.Data, At: time.Unix(h.Timestamp.Seconds, h.Timestamp.Microseconds*1000)}
			for sent := false; !sent; {
				select {
				case q.events <- e:
					sent = true
				default:
					select {
					case <-q.events:
					default:
					}
				}
			}
		case h.QMP == nil:
			q.mu.Lock()
			to := q.waiting[h.ID]
			delete(q.waiting, h.ID)
			q.mu.Unlock()
			if to != nil {
				to <- reply{h.Return, h.Error}
			}
		}
	}
	q.mu.Lock()
	q.err = err
	for _, to := range q.waiting {
		close(to)
	}
	q.waiting = nil
	q.mu.Unlock()
	close(q.events)
	_ = q.conn.Close()
}

// Command does one command and gives what it returned. Args is its arguments object; nil is none.
func (q *Monitor) Command(ctx context.Context, name string, args any) (json.RawMessage, error) {
	return q.command(ctx, name, args, nil)
}

// command is Command with a file that travels beside it, if it is not nil.
func (q *Monitor) command(ctx context.Context, name string, args any, file *os.File) (json.RawMessage, error) {
	to := make(chan reply, 1)
	q.mu.Lock()
	if q.waiting == nil {
		defer q.mu.Unlock()
		return nil, fmt.Errorf("monitor: %s: %w", name, q.err)
	}
	q.next++
	id := q.next
	q.waiting[id] = to
	err := q.send(name, id, args, file)
	if err != nil {
		delete(q.waiting, id)
	}
	q.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("monitor: %s: %w", name, err)
	}
	select {
	case r, ok := <-to:
		switch {
		case !ok:
			return nil, fmt.Errorf("monitor: %s: %w", name, errors.New("the machine has ended"))
		case r.Error != nil:
			return nil, fmt.Errorf("monitor: %s: %s", name, r.Error.Desc)
		}
		return r.Return, nil
	case <-ctx.Done():
		q.mu.Lock()
		delete(q.waiting, id)
		q.mu.Unlock()
		return nil, fmt.Errorf("monitor: %s: %w", name, ctx.Err())
	}
}

func (q *Monitor) send(name string, id int, args any, file *os.File) error {
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		ID        int    `json:"id"`
		Arguments any    `json:"arguments,omitempty"`
	}{name, id, args})
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if file == nil {
		_, err = q.conn.Write(b)
		return err
	}
	conn, ok := q.conn.(*net.UnixConn)
	if !ok {
		return errors.New("no descriptors go through it")
	}
	_, _, err = conn.WriteMsgUnix(b, unix.UnixRights(int(file.Fd())), nil)
	return err
}

// SetLink gives the guest's end of a card its carrier, or takes it away.
func (q *Monitor) SetLink(ctx context.Context, d model.VMDevice, up bool) error {
	_, err := q.Command(ctx, "set_link", map[string]any{"name": ID(d), "up": up})
	return err
}

// State is what the machine does: running, paused, inmigrate, postmigrate, shutdown …
func (q *Monitor) State(ctx context.Context) (string, error) {
	b, err := q.Command(ctx, "query-status", nil)
	if err != nil {
		return "", err
	}
	var s struct{ Status string }
	if err := json.Unmarshal(b, &s); err != nil {
		return "", fmt.Errorf("monitor: query-status: %w", err)
	}
	return s.Status, nil
}
