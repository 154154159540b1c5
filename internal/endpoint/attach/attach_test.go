// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestAddCheckDel(t *testing.T) {
	n := newNode(t)
	id, ns := n.pod()
	job := n.job(n.list(bridge), id, ns)
	result := n.add(job)
	if len(result.IPs) != 1 || len(result.Interfaces) != 3 {
		t.Fatalf("%+v", result)
	}
	nettest.Run(t, ns, "ping", "-c1", "-W20", "10.8.0.1")
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	rec, ok, err := n.ledger.Get(job.Request.Key())
	if err != nil || !ok || rec.Stage != attach.Done || diff(*rec.Result, result) != "" {
		t.Errorf("record: %v %v %+v", ok, err, rec)
	}
	for range 2 {
		if err := n.Del(t.Context(), job); err != nil {
			t.Errorf("DEL: %v", err)
		}
		// DEL's answer leaves a dead link for some 30 ms, which passes no packets.
		if out, err := nettest.Try(ns, "ping", "-c1", "-W1", "10.8.0.1"); err == nil {
			t.Errorf("eth0 passes packets after DEL: %s", out)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
			out, err := nettest.Try(ns, "ip", "link", "show", "eth0")
			if err != nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("eth0 is there a minute after DEL: %s", out)
			}
		}
	}
	n.clean("DEL")
}

// CHECK reports what differs.
func TestCheckFindsVandals(t *testing.T) {
	n := newNode(t)
	for _, tt := range []struct {
		name     string
		outsider func(ns *netns.NS)
		words    string
	}{
		{"address", func(ns *netns.NS) { nettest.Run(t, ns, "ip", "addr", "del", "10.8.0.2/24", "dev", "eth0") }, "10.8.0.2"},
		{"route", func(ns *netns.NS) { nettest.Run(t, ns, "ip", "route", "del", "default") }, "0.0.0.0/0"},
		{"link", func(ns *netns.NS) { nettest.Run(t, ns, "ip", "link", "del", "eth0") }, "eth0"},
		{"masquerade", func(*netns.NS) { nettest.Run(t, nil, "nft", "flush set inet weft masq4") }, "masq4"},
		{"port", func(*netns.NS) { nettest.Run(t, nil, "ip", "link", "set", "abr0", "down") }, "abr0"},
		{"reservation", func(*netns.NS) { _ = os.Remove(n.data + "/net/10.8.0.2") }, "10.8.0.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_ = os.RemoveAll(n.data + "/net") // so that every pod has the first address
			id, ns := n.pod()
			job := n.job(n.list(bridge), id, ns)
			result := n.add(job)
			job.Prev = &result
			tt.outsider(ns)
			wantCode(t, "CHECK", n.Check(t.Context(), job), model.CodeDiffers, tt.words)
			if err := n.Del(t.Context(), job); err != nil {
				t.Errorf("DEL: %v", err)
			}
			n.clean(tt.name)
		})
	}
}

// The same ADD again has the same answer while all is as it was, and is an error otherwise.
func TestSameAddAgain(t *testing.T) {
	n := newNode(t)
	id, ns := n.pod()
	job := n.job(n.list(bridge), id, ns)
	first := n.add(job)
	if d := diff(first, n.add(job)); d != "" {
		t.Errorf("another answer: %s", d)
	}
	other := n.job(n.list(strings.Replace(bridge, `"ipMasq":true`, `"ipMasq":false`, 1)), id, ns)
	_, err := n.Add(t.Context(), other)
	wantCode(t, "another configuration", err, model.CodeExists, "another configuration", "DEL")
	nettest.Run(t, ns, "ip", "route", "del", "default")
	_, err = n.Add(t.Context(), job)
	wantCode(t, "changed since", err, model.CodeExists, "0.0.0.0/0")
	nettest.Run(t, ns, "ip", "link", "del", "eth0")
	if second := n.add(job); len(second.IPs) != 1 {
		t.Errorf("ADD over the remains: %+v", second)
	}
	if len(n.reserved()) != 1 {
		t.Errorf("addresses: %v", n.reserved())
	}
	// The container's namespace is a new one under the old name: what was is gone.
	_, fresh := n.pod()
	moved := n.job(n.list(bridge), id, fresh)
	n.add(moved)
	if err := n.Del(t.Context(), moved); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

func TestInterfaceWithoutRecord(t *testing.T) {
	n := newNode(t)
	id, ns := n.pod()
	nettest.Run(t, ns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
	_, err := n.Add(t.Context(), n.job(n.list(bridge), id, ns))
	wantCode(t, "ADD", err, model.CodeExists, "eth0")
	nettest.Run(t, ns, "ip", "link", "show", "eth0")
	n.clean("a refused ADD")
}

// DEL works from the record alone.
func TestDelFromTheRecord(t *testing.T) {
	n := newNode(t)
	n.plugin("other", passOn)
	for name, change := range map[string]func(job *attach.Job){
		"namespace gone": func(job *attach.Job) { job.Netns, job.Request.Netns = nil, "" },
		"configuration changed": func(job *attach.Job) {
			job.Network.Plugins = n.job(n.list(`{"type":"loopback"}`), "x", nil).Network.Plugins
		},
		"configuration gone": func(job *attach.Job) { job.Network.Plugins = nil },
		"no search path":     func(job *attach.Job) { job.Request.CNIPath = nil },
	} {
		id := "gone-" + strings.ReplaceAll(name, " ", "-")
		path := t.TempDir() + "/ns"
		ns, err := netns.New(path)
		if err != nil {
			t.Fatal(err)
		}
		job := n.job(n.list(bridge, `{"type":"other"}`), id, ns)
		n.add(job)
		change(&job)
		if job.Netns == nil {
			if err := errors.Join(ns.Close(), netns.Remove(path)); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Del(t.Context(), job); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n.clean(name)
		if v := n.verbs("other"); v != "ADD DEL" {
			t.Errorf("%s: foreign calls: %s", name, v)
		}
		_ = os.Remove(n.calls("other"))
		if job.Netns != nil {
			_ = errors.Join(ns.Close(), netns.Remove(path))
		}
	}
}

// Without a record, DEL finds its way by the configuration and the marks.
func TestDelWithoutRecord(t *testing.T) {
	n := newNode(t)
	for _, gone := range []bool{false, true} {
		id, ns := n.pod()
		job := n.job(n.list(bridge), id, ns)
		n.add(job)
		if err := n.ledger.Delete(job.Request.Key()); err != nil {
			t.Fatal(err)
		}
		if gone {
			job.Netns = nil
		}
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
		if got := n.reserved(); len(got) > 0 {
			t.Errorf("addresses left: %v", got)
		}
		if out := nettest.Run(t, nil, "ip", "-o", "link", "show", "type", "veth"); out != "" {
			t.Errorf("links left: %s", out)
		}
		if out := nettest.Run(t, nil, "nft", "list", "set", "inet", "weft", "masq4"); strings.Contains(out, "10.8.0") {
			t.Errorf("elements left: %s", out)
		}
	}
}

// The node's own namespace is never a container's.
func TestOwnNamespace(t *testing.T) {
	n := newNode(t)
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	job := n.job(n.list(bridge), "self", own)
	_, err = n.Add(t.Context(), job)
	wantCode(t, "ADD", err, model.CodeInvalidNetns, "node itself")
	wantCode(t, "DEL", n.Del(t.Context(), job), model.CodeInvalidNetns)
	job.Netns = nil
	_, err = n.Add(t.Context(), job)
	wantCode(t, "ADD without namespace", err, model.CodeInvalidNetns)
	n.clean("refused calls")
}

// Many at once: no address twice, nothing left.
func TestParallel(t *testing.T) {
	n := newNode(t)
	const pods = 100
	jobs := make([]attach.Job, pods)
	for i := range jobs {
		id, ns := n.pod()
		jobs[i] = n.job(n.list(bridge), id, ns)
	}
	var mu sync.Mutex
	seen := map[string]string{}
	each := func(f func(attach.Job) error) {
		var wg sync.WaitGroup
		for _, job := range jobs {
			wg.Go(func() {
				if err := f(job); err != nil {
					t.Errorf("%s: %v", job.Request.ContainerID, err)
				}
			})
		}
		wg.Wait()
	}
	each(func(job attach.Job) error {
		result, err := n.Add(t.Context(), job)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, ip := range result.IPs {
			if other := seen[ip.Address.String()]; other != "" {
				return fmt.Errorf("%s has %s already", other, ip.Address)
			}
			seen[ip.Address.String()] = job.Request.ContainerID
		}
		return nil
	})
	each(func(job attach.Job) error { return n.Check(t.Context(), job) })
	each(func(job attach.Job) error { return n.Del(t.Context(), job) })
	n.clean("all")
}
