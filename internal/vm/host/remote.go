// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// The verbs of the agent.
const (
	VerbStart = "vm-start"
	VerbStop  = "vm-stop"
	VerbList  = "vm-list"
)

// Ask is what the agent is asked. The pod's namespace travels beside it.
type Ask struct {
	// Netns is the path by which the caller has opened the namespace, ID and Root are Pod's.
	Netns string `json:"netns,omitempty"`
	ID    string `json:"id,omitempty"`
	Root  string `json:"root,omitempty"`
	// Machine is Stop's key, Input is Start's.
	Machine string      `json:"machine,omitempty"`
	Input   *plan.Input `json:"input,omitempty"`
}

// remote asks the agent.
type remote struct{ socket string }

func (r remote) Start(ctx context.Context, pod Pod, in plan.Input) (phase1.Record, error) {
	var out phase1.Record
	err := r.call(ctx, VerbStart, pod, Ask{Input: &in}, &out)
	return out, err
}

func (r remote) Stop(ctx context.Context, pod Pod, key string) error {
	return r.call(ctx, VerbStop, pod, Ask{Machine: key}, nil)
}

func (r remote) List(ctx context.Context) ([]phase1.Record, error) {
	var out []phase1.Record
	err := r.call(ctx, VerbList, Pod{}, Ask{}, &out)
	return out, err
}

func (r remote) Find(ctx context.Context, key string) (found phase1.Record, ok bool, err error) {
	all, err := r.List(ctx)
	for _, one := range all {
		if one.Machine != key {
			continue
		}
		if ok {
			return phase1.Record{}, false, model.Faultf(model.CodeInvalidEnv, "", "machine %s is in the pods %s and %s", key, found.In, one.In)
		}
		found, ok = one, true
	}
	return found, ok, err
}

// Serve waits: the agent serves.
func (r remote) Serve(ctx context.Context, _ Pod, _ string) error {
	<-ctx.Done()
	return nil
}

func (r remote) Close() error { return nil }

// call asks the agent one thing.
func (r remote) call(ctx context.Context, verb string, pod Pod, ask Ask, out any) error {
	ask.ID, ask.Root = pod.ID, pod.Root
	var rights []byte
	if pod.NS != nil {
		ask.Netns, rights = pod.NS.Path(), unix.UnixRights(pod.NS.Fd())
	}
	return r.send(ctx, verb, ask, rights, out)
}

// Question asks the agent at a socket something by one of its verbs. The answer is decoded into out.
func Question(ctx context.Context, socket, verb string, out any) error {
	return remote{socket: socket}.send(ctx, verb, Ask{}, nil, out)
}

func (r remote) send(ctx context.Context, verb string, ask Ask, rights []byte, out any) error {
	body, err := json.Marshal(ask)
	if err != nil {
		return fmt.Errorf("question to the agent: %w", err)
	}
	env := wire.VerbName + "=" + verb + "\x00"
	frame := append(make([]byte, wire.RequestHeader), env...)
	wire.Header{Netns: rights != nil, Env: len(env), Conf: len(body)}.Put(frame)
	answer, err := r.exchange(ctx, append(frame, body...), rights)
	if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("agent at %s: its answer: %w", r.socket, err)
	}
	return nil
}

// exchange sends a frame and gives what the agent answers.
func (r remote) exchange(ctx context.Context, frame, rights []byte) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, model.Faultf(model.CodeTryAgain, "try again: what it had begun it takes up, or back", "agent at %s: %w", r.socket, err)
	}
	ctx, cancel := context.WithTimeout(ctx, wire.CallMillis*time.Millisecond)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.socket)
	if err != nil {
		return fail(err)
	}
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return fail(errors.New("not a unix socket"))
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	n, _, err := c.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) {
		_, err = c.Write(frame[n:])
	}
	head := make([]byte, wire.AnswerHeader)
	if err == nil {
		_, err = io.ReadFull(c, head)
	}
	if err != nil {
		return fail(err)
	}
	h, err := wire.ParseAnswer(head)
	if err != nil {
		return fail(err)
	}
	text := make([]byte, h.Len)
	if _, err := io.ReadFull(c, text); err != nil {
		return fail(err)
	}
	if h.Exit != 0 {
		if fault, ok := cni.ParseError(text); ok {
			return nil, fault
		}
		return fail(fmt.Errorf("exit code %d", h.Exit))
	}
	return text, nil
}
