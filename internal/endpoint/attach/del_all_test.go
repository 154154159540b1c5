// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/nettest"
)

// The networks of a pod are taken from the kernel in one pass, those that cannot be one by one; again is no error.
func TestDelAll(t *testing.T) {
	nettest.Need(t, "macvlan")
	n := newNode(t)
	n.uplink()
	passes := 0
	cfg := n.cfg
	cfg.Failpoint = func(name string) error {
		if name == "after undo apply" {
			passes++
		}
		return nil
	}
	n.Attacher = attach.New(cfg)
	id, ns := n.pod()
	jobs := n.many(id, ns, 3)
	if _, _, err := n.AddAll(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	never := n.many(id, ns, 4)[4] // was never added
	for round := range 2 {
		for i, err := range n.DelAll(t.Context(), append(jobs, never)) {
			if err != nil {
				t.Errorf("job %d: %v", i, err)
			}
		}
		if round == 0 && passes != 1 {
			t.Errorf("%d passes for four networks", passes)
		}
	}
	n.drain()
	n.gone(ns, "eth0", "net1", "net2", "net3")
	if list, err := n.ledger.List(); err != nil || len(list) > 0 {
		t.Errorf("records left: %d %v", len(list), err)
	}
	if _, _, err := n.AddAll(t.Context(), jobs); err != nil {
		t.Error(err)
	}
	for _, err := range n.DelAll(t.Context(), jobs) {
		if err != nil {
			t.Error(err)
		}
	}
	n.unplug()
}

// Wherever a DEL is broken off, the next one does the rest.
func TestDelAllFailsAnywhere(t *testing.T) {
	nettest.Need(t, "macvlan")
	n := newNode(t)
	n.uplink()
	errStep := errors.New("not today")
	for k := 0; ; k++ {
		id, ns := n.pod()
		jobs := n.many(id, ns, 2)
		if _, _, err := n.AddAll(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		cfg := n.cfg
		seen, at := 0, ""
		cfg.Failpoint = func(name string) error {
			if strings.Contains(name, "forget") || strings.Contains(name, "shared") {
				return nil // behind the answer
			}
			if seen++; seen > k && seen < k+20 {
				at = name
				return errStep
			}
			return nil
		}
		failed := false
		for _, err := range attach.New(cfg).DelAll(t.Context(), jobs) {
			failed = failed || err != nil
		}
		for _, err := range n.DelAll(t.Context(), jobs) {
			if err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
		n.drain()
		n.gone(ns, "eth0", "net1", "net2")
		if list, err := n.ledger.List(); err != nil || len(list) > 0 {
			t.Errorf("%s: records left: %d %v", at, len(list), err)
		}
		if !failed {
			if k < 4 {
				t.Errorf("only %d steps", k)
			}
			break
		}
	}
	n.unplug()
}

// An address that a pod brought along is free when its networks are detached, however long their links take to go.
func TestDelAllFreesUnmanagedAddresses(t *testing.T) {
	nettest.Need(t, "macvlan")
	const brings = "cni.projectcalico.org/ipAddrsNoIpam"
	n, _ := wishingNode(t)
	n.uplink()
	held := make(chan struct{})
	var armed atomic.Bool
	n.cfg.Failpoint = func(name string) error {
		if name == "before forget" && armed.CompareAndSwap(true, false) {
			<-held // as those wait that are behind it
		}
		return nil
	}
	n.Attacher = attach.New(n.cfg)
	let := sync.OnceFunc(func() { close(held) })
	defer let()
	first := n.saying(calicoOpen, "web-0", brings, `["10.8.0.60"]`)
	second := n.job(strings.Replace(n.list(other), `"name":"net"`, `"name":"wire"`, 1),
		first.Request.ContainerID, first.Netns)
	second.Request.IfName = "net1"
	jobs := []attach.Job{first, second}
	if _, _, err := n.AddAll(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	for _, err := range n.DelAll(t.Context(), jobs) {
		if err != nil {
			t.Error(err)
		}
	}
	next := n.saying(calicoOpen, "web-1", brings, `["10.8.0.60"]`)
	if _, err := n.Add(t.Context(), next); err != nil {
		t.Error(err)
	}
	let()
	if err := n.Del(t.Context(), next); err != nil {
		t.Error(err)
	}
	n.drain()
	n.unplug()
}
