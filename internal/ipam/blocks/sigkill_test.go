// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// killedAt has a process live the life of a node until its step of that number, at which it kills itself: "STEP DIR".
const killedAt = "WEFT_TEST_BLOCKS_KILLED"

const lifeConf = `{"cniVersion":"1.0.0","name":"net","type":"calico","ipam":{"type":"calico-ipam"}}`

// life is a node: an engine over a directory that nodes share, and a ledger.
type life struct {
	engine *Engine
	alloc  *Cluster
	ledger *ledger.Ledger
	now    time.Time
	left   int // steps until the process is killed; 0 is never
}

func (l *life) step(string) error {
	if l.left--; l.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it is on its way
	}
	return nil
}

func openLife(path, node string, left int) (*life, error) {
	l := &life{now: time.Unix(1e9, 0), left: left}
	s, err := dir.Open(filepath.Join(path, "store"))
	if err != nil {
		return nil, err
	}
	if l.ledger, err = ledger.Open(filepath.Join(path, node, "ledger")); err != nil {
		return nil, err
	}
	l.engine, err = Open(Config{
		Objects: s.Objects(), Node: node, Dir: filepath.Join(path, node, "blocks"), Now: func() time.Time { return l.now },
		After:  func(time.Duration) <-chan time.Time { c := make(chan time.Time, 1); c <- l.now; return c },
		Random: rand.New(rand.NewSource(int64(left))), Failpoint: l.step,
	})
	if err != nil {
		return nil, err
	}
	for _, a := range l.engine.Allocators() {
		if c, is := a.(*Cluster); is {
			l.alloc = c
		}
	}
	records, err := l.ledger.List()
	if err != nil {
		return nil, err
	}
	var reqs []ipam.Request
	for _, r := range records {
		req := askFor(r.Request.ContainerID)
		for _, ip := range r.Acts[0].IPs {
			req.Held = append(req.Held, ip.Address.Addr())
		}
		reqs = append(reqs, req)
	}
	l.engine.Restore(context.Background(), reqs)
	for _, r := range records { // as attach does at its start
		if r.Stage != attach.Done {
			if err := l.del(r.Request.ContainerID); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

func askFor(id string) ipam.Request {
	return ipam.Request{Conf: json.RawMessage(lifeConf), Network: "net", ContainerID: id, IfName: "eth0"}
}

// add is an ADD as far as it is about the address.
func (l *life) add(id string) error {
	h, err := l.alloc.Reserve(context.Background(), askFor(id))
	if err != nil {
		return err
	}
	defer h.Cancel()
	result := h.Result()
	rec := attach.Record{
		Stage: attach.Pending, Request: model.Request{Network: "net", ContainerID: id, IfName: "eth0"},
		Acts: []attach.Act{{Kind: attach.ActIPAM, IPs: result.IPs}},
	}
	_ = l.step("before promise")
	if err := l.ledger.Put(rec); err != nil {
		return err
	}
	_ = l.step("after promise")
	if err := h.Commit(); err != nil {
		return err
	}
	rec.Stage = attach.Done
	if err := l.ledger.Put(rec); err != nil {
		return err
	}
	_ = l.step("after done")
	return nil
}

func (l *life) del(id string) error {
	rec, found, err := l.ledger.Get(askFor(id).Key())
	if err != nil || !found {
		return err
	}
	rec.Stage = attach.Releasing
	if err := l.ledger.Put(rec); err != nil {
		return err
	}
	_ = l.step("after releasing")
	req := askFor(id)
	for _, ip := range rec.Acts[0].IPs {
		req.Held = append(req.Held, ip.Address.Addr())
	}
	if err := l.alloc.Del(context.Background(), req); err != nil {
		return err
	}
	_ = l.step("before forget")
	return l.ledger.Delete(rec.Key())
}

// run is a life: pods come and go, more than a block has, and the empty blocks go back.
func (l *life) run() error {
	var errs []error
	for round := range 2 {
		for i := range 11 {
			errs = append(errs, l.add(fmt.Sprint("c", round, "-", i)))
		}
		for i := range 8 {
			errs = append(errs, l.del(fmt.Sprint("c", round, "-", i)))
		}
		for range 3 {
			l.now = l.now.Add(2 * time.Minute)
			errs = append(errs, l.engine.Reconcile(context.Background()))
		}
	}
	return errors.Join(errs...)
}

// lifeMain is such a process.
func lifeMain(words string) int {
	number, path, _ := strings.Cut(words, " ")
	left, err := strconv.Atoi(number)
	if err == nil {
		var l *life
		if l, err = openLife(path, "a", left); err == nil {
			err = l.run()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestKilledAtAnyStep: SIGKILL at each step of claims, allocations, releases and returns. What comes after has no
// address twice, and loses none.
func TestKilledAtAnyStep(t *testing.T) {
	nettest.EndToEnd(t)
	kills := 0
	for step := 1; ; step++ {
		path := fastDir(t)
		if err := os.Mkdir(filepath.Join(path, "store"), 0o700); err != nil {
			t.Fatal(err)
		}
		text := "apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: p}\nspec:\n  assignmentMode: Automatic\n  regions: [{cidr: 10.1.0.0/27, blockSize: 29}]\n"
		if err := os.WriteFile(filepath.Join(path, "store", "pool.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", killedAt, step, path))
		cmd.Stderr = os.Stderr
		err := cmd.Run()
		cancel()
		if err == nil {
			break // there is no such step
		}
		var end *exec.ExitError
		if !errors.As(err, &end) || !end.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("step %d: %v", step, err)
		}
		kills++
		after(t, path)
		if t.Failed() {
			t.Fatalf("killed at step %d", step)
		}
	}
	t.Logf("%d kills", kills)
	if kills < 60 {
		t.Errorf("only %d steps", kills)
	}
}

// after continues where the killed process ended, together with another node, until all addresses of the pool are in
// use.
func after(t *testing.T, path string) {
	t.Helper()
	a, err := openLife(path, "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.ledger.Close() }()
	b, err := openLife(path, "b", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.ledger.Close() }()
	nodes := []*life{a, b}
	for round := range 40 {
		for i, n := range nodes {
			n.now = n.now.Add(20 * time.Second)
			if n.add(fmt.Sprint("after", i, "-", round)) != nil {
				_ = n.engine.Reconcile(context.Background())
			}
		}
	}
	used := map[netip.Addr]string{}
	for i, n := range nodes {
		records, err := n.ledger.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			for _, ip := range r.Acts[0].IPs {
				if other := used[ip.Address.Addr()]; other != "" {
					t.Errorf("address %s of %s on node %d is that of %s", ip.Address.Addr(), r.Key(), i, other)
				}
				used[ip.Address.Addr()] = r.Key().String()
			}
		}
	}
	if len(used) != 32 {
		t.Errorf("%d of 32 addresses are in use", len(used))
	}
}
