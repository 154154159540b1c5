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

// Monitor is a QMP client of a VM.
type Monitor struct {
	conn   net.Conn
	events chan Event

	mu      sync.Mutex
	next    int
	pending map[int]chan reply
	err     error // why the connection ended
}

// Event is a QMP event: RESUME, STOP, MIGRATION, SHUTDOWN, NIC_RX_FILTER_CHANGED …
type Event struct {
	Name string
	Data json.RawMessage
	// At is the event's time, by the hypervisor's clock.
	At time.Time
}

// reply is the reply to a command.
type reply struct {
	Return json.RawMessage
	Error  *struct{ Class, Desc string }
}

// message is a message of the monitor.
type message struct {
	QMP       json.RawMessage `json:"QMP"`
	ID        int             `json:"id"`
	Return    json.RawMessage `json:"return"`
	Error     *struct{ Class, Desc string }
	Event     string          `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp struct{ Seconds, Microseconds int64 }
}

// eventBuffer is the number of unread events; when it is full the oldest is dropped.
const eventBuffer = 256

// Dial connects to the monitor of the VM in a directory. QEMU serves one connection at a time, and the process that
// started the VM uses this one.
func Dial(ctx context.Context, dir string) (*Monitor, error) { return connect(ctx, dir, qmpName) }

// DialControl connects to the VM's second monitor, for other processes. QEMU serves one connection at a time.
func DialControl(ctx context.Context, dir string) (*Monitor, error) {
	return connect(ctx, dir, controlName)
}

func connect(ctx context.Context, dir, name string) (*Monitor, error) {
	conn, err := dial(ctx, dir, name)
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	q := &Monitor{conn: conn, events: make(chan Event, eventBuffer), pending: map[int]chan reply{}}
	go q.listen()
	if _, err := q.Command(ctx, "qmp_capabilities", nil); err != nil {
		q.Close()
		return nil, err
	}
	return q, nil
}

// Events returns the channel of the VM's events. It is closed with the monitor.
func (q *Monitor) Events() <-chan Event { return q.events }

// Close closes the connection; the VM continues.
func (q *Monitor) Close() { _ = q.conn.Close() }

// listen reads messages, and passes replies to the waiting commands.
func (q *Monitor) listen() {
	dec := json.NewDecoder(q.conn)
	var err error
	for {
		var h message
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
			to := q.pending[h.ID]
			delete(q.pending, h.ID)
			q.mu.Unlock()
			if to != nil {
				to <- reply{h.Return, h.Error}
			}
		}
	}
	q.mu.Lock()
	q.err = err
	for _, to := range q.pending {
		close(to)
	}
	q.pending = nil
	q.mu.Unlock()
	close(q.events)
	_ = q.conn.Close()
}

// Command executes a command and returns its result. Args is the arguments object; nil is none.
func (q *Monitor) Command(ctx context.Context, name string, args any) (json.RawMessage, error) {
	return q.command(ctx, name, args, nil)
}

// command is Command with an optional file that is sent with it.
func (q *Monitor) command(ctx context.Context, name string, args any, file *os.File) (json.RawMessage, error) {
	to := make(chan reply, 1)
	q.mu.Lock()
	if q.pending == nil {
		defer q.mu.Unlock()
		return nil, fmt.Errorf("monitor: %s: %w", name, q.err)
	}
	q.next++
	id := q.next
	q.pending[id] = to
	err := q.send(name, id, args, file)
	if err != nil {
		delete(q.pending, id)
	}
	q.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("monitor: %s: %w", name, err)
	}
	select {
	case r, ok := <-to:
		switch {
		case !ok:
			return nil, fmt.Errorf("monitor: %s: %w", name, errors.New("the VM has ended"))
		case r.Error != nil:
			return nil, fmt.Errorf("monitor: %s: %s", name, r.Error.Desc)
		}
		return r.Return, nil
	case <-ctx.Done():
		q.mu.Lock()
		delete(q.pending, id)
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
		return errors.New("the connection cannot pass descriptors")
	}
	_, _, err = conn.WriteMsgUnix(b, unix.UnixRights(int(file.Fd())), nil)
	return err
}

// SetLink sets the carrier of a guest's network device.
func (q *Monitor) SetLink(ctx context.Context, d model.VMDevice, up bool) error {
	_, err := q.Command(ctx, "set_link", map[string]any{"name": DeviceID(d), "up": up})
	return err
}

// State returns the VM's run state: running, paused, inmigrate, postmigrate, shutdown …
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
