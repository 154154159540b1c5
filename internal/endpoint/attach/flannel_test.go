// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

const (
	flannelPlugin = `{"type":"flannel","subnetFile":"DATA/subnet.env","dataDir":"DATA/flannel","delegate":{"bridge":"abr0","isDefaultGateway":true},"ipam":{"dataDir":"DATA"}}`
	portmapPlugin = `{"type":"portmap","snat":false,"capabilities":{"portMappings":true},"runtimeConfig":{"portMappings":[{"hostPort":8088,"containerPort":80,"protocol":"tcp"}]}}`
	lease         = "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
)

func (n *node) lease(text string) {
	n.t.Helper()
	if err := os.WriteFile(n.data+"/subnet.env", []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// saved are the delegates that are written down.
func (n *node) saved() string {
	names, _ := filepath.Glob(n.data + "/flannel/*")
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	return strings.Join(names, " ")
}

// kube-flannel's list in an agent: the delegate is planned with what comes after it, recorded, and undone by the
// record.
func TestFlannel(t *testing.T) {
	n := newNode(t)
	n.lease(lease)
	id, ns := n.pod()
	job := n.job(n.list(flannelPlugin, portmapPlugin), id, ns)
	if err := n.Status(t.Context(), job); err != nil {
		t.Error(err)
	}
	result := n.add(job)
	if len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.42.3.2/24" || n.saved() != id {
		t.Errorf("%+v, written down: %q", result, n.saved())
	}
	if again := n.add(job); diff(result, again) != "" {
		t.Errorf("the same ADD again: %s", diff(result, again))
	}
	n.lease(strings.Replace(lease, "1450", "1400", 1)) // the pods that are there keep what they have
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	id2, ns2 := n.pod()
	second := n.job(n.list(flannelPlugin, strings.Replace(portmapPlugin, "8088", "8089", 1)), id2, ns2)
	n.add(second)
	if out := nettest.Run(t, ns2, "ip", "link", "show", "eth0"); !strings.Contains(out, "mtu 1400") {
		t.Errorf("%s", out)
	}
	if err := n.Del(t.Context(), second); err != nil {
		t.Error(err)
	}
	if err := os.Remove(n.data + "/subnet.env"); err != nil {
		t.Fatal(err)
	}
	if err := n.GC(t.Context(), job, []model.AttachmentKey{job.Request.Key()}); err != nil {
		t.Error(err)
	}
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	_, err := n.Add(t.Context(), second)
	wantCode(t, "ADD without a lease", err, model.CodeTryAgain, "subnet.env is not there yet")
	wantCode(t, "STATUS without a lease", n.Status(t.Context(), job), model.CodeNotAvailable,
		"subnet.env is not there yet")
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	if n.saved() != "" {
		t.Errorf("written down after the last DEL: %q", n.saved())
	}
	n.clean("DEL")
}

// What the original plugin attached before there was an agent: its DEL goes by what it wrote down, whatever became of
// the lease since.
func TestFlannelOfTheOriginal(t *testing.T) {
	n := newNode(t)
	n.lease(lease)
	id, ns := n.pod()
	job := n.job(n.list(flannelPlugin), id, ns)
	n.add(job)
	if err := n.ledger.Delete(job.Request.Key()); err != nil { // no record; the file is the reference plugin's
		t.Fatal(err)
	}
	n.lease(strings.ReplaceAll(lease, "10.42.3", "10.42.4"))
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.gone(ns, "eth0")
	if n.saved() != "" || len(n.reserved()) > 0 {
		t.Errorf("left: %q %v", n.saved(), n.reserved())
	}
	nettest.Run(t, nil, "ip", "link", "del", "abr0")
	n.clean("DEL")
}

// Whatever step fails, nothing is left, not even what was written down; the same where the call is killed there.
func TestFlannelFailsAnywhere(t *testing.T) {
	n := newNode(t)
	n.lease(lease)
	errStep := errors.New("not today")
	for k, steps := 0, 1; k < steps; k++ {
		var seen []string
		cfg := n.cfg
		cfg.Failpoint = func(name string) error {
			seen = append(seen, name)
			if len(seen) == k+1 {
				return errStep
			}
			return nil
		}
		id, ns := n.pod()
		job := n.job(n.list(flannelPlugin, portmapPlugin), id, ns)
		other := n.job(
			strings.NewReplacer(`"name":"net"`, `"name":"more"`, "abr0", "abr1", `"isDefaultGateway"`,
				`"isGateway"`).Replace(n.list(flannelPlugin)), id, ns,
		)
		other.Request.IfName = "net1"
		_, _, err := attach.New(cfg).AddAll(t.Context(), []attach.Job{job, other})
		if err == nil {
			if n.saved() != id+" "+id+".net1" {
				t.Errorf("written down: %q", n.saved())
			}
			for _, err := range n.DelAll(t.Context(), []attach.Job{other, job}) {
				if err != nil {
					t.Error(err)
				}
			}
			break
		}
		steps = k + 2
		if n.saved() != "" {
			t.Errorf("%s: written down: %q", seen[k], n.saved())
		}
		n.clean(seen[k])
	}
	n.clean("all DELs")
	for _, at := range []string{"after promise save", "after save", "after apply"} {
		id, ns := n.pod()
		if _, err := n.cut(at).Add(t.Context(), n.job(n.list(flannelPlugin), id, ns)); !errors.Is(err, errCut) {
			t.Fatalf("%s: %v", at, err)
		}
	}
	if _, err := attach.New(n.cfg).Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if n.saved() != "" {
		t.Errorf("written down after a recovery: %q", n.saved())
	}
	n.clean("recovery")
}
