// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/multinet"
)

const multiNetwork = examples + "/multi-network"

// multiNetworkLab is the lab of examples/multi-network.
type multiNetworkLab struct {
	t     *testing.T
	dir   string
	store *dir.Store
}

func newTwoNetworks(t *testing.T) *multiNetworkLab {
	t.Helper()
	l := &multiNetworkLab{t: t, dir: labDir(t)}
	must(t, "lab", "up", "--nodes", "1", "--from", multiNetwork, "--dir", l.dir)
	var err error
	if l.store, err = dir.Open(filepath.Join(l.dir, "store")); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *multiNetworkLab) ip(args ...string) string {
	l.t.Helper()
	argv := append([]string{"lab", "exec", "--dir", l.dir, "default/two-networks", "--", "ip"}, args...)
	return weft(l.t, argv...).stdout
}

func (l *multiNetworkLab) annotation(key string) string {
	l.t.Helper()
	o, err := l.store.Get(store.PodKey("default", "two-networks"))
	if err != nil {
		l.t.Fatal(err)
	}
	p, err := o.Pod()
	if err != nil {
		l.t.Fatal(err)
	}
	return p.Annotations[key]
}

func (l *multiNetworkLab) setNetworks(networks string) {
	l.t.Helper()
	edit := store.Annotate(map[string]string{multinet.NetworksKey: networks})
	if _, err := l.store.Modify(l.t.Context(), store.PodKey("default", "two-networks"), edit); err != nil {
		l.t.Fatal(err)
	}
}

// events returns the reasons and messages of the pod's events.
func (l *multiNetworkLab) events() string {
	l.t.Helper()
	list, err := l.store.List("Event")
	if err != nil {
		l.t.Fatal(err)
	}
	var all []string
	for _, o := range list {
		e := decode[struct{ Type, Reason, Message string }](l.t, string(o.Raw))
		all = append(all, e.Type+" "+e.Reason+": "+e.Message)
	}
	return strings.Join(all, "\n")
}

func (l *multiNetworkLab) wantEvent(text string) {
	l.t.Helper()
	within(l.t, 10*waitUnit, "event "+text, func() bool { return strings.Contains(l.events(), text) })
}

// The pod of examples/multi-network has a second network; the default route uses the first one.
func TestMultiNetwork(t *testing.T) {
	l := newTwoNetworks(t)
	if out := l.ip("-4", "-br", "addr", "show", "net1"); !strings.Contains(out, "10.37.132.20/24") {
		t.Errorf("net1: %s", out)
	}
	if out := l.ip("route", "show", "default"); !strings.Contains(out, "dev eth0") || strings.Count(out, "\n") != 1 {
		t.Errorf("default routes: %s", out)
	}
	within(t, 10*waitUnit, "the network status", func() bool { return l.annotation(multinet.StatusKey) != "" })
	status := decode[[]struct {
		Name, Interface string
		IPs             []string
		Default         bool
	}](t, l.annotation(multinet.StatusKey))
	if len(status) != 2 || status[0].Interface != "eth0" || !status[0].Default ||
		status[1].Name != "default/macvlan-conf" ||
		status[1].Interface != "net1" || strings.Join(status[1].IPs, " ") != "10.37.132.20" || status[1].Default {
		t.Errorf("network status: %+v", status)
	}
	l.wantEvent("Normal AddedInterface: Add net1 [10.37.132.20/24] from default/macvlan-conf")
	must(t, "lab", "down", "--dir", l.dir)
}

// A running pod is attached to networks that are added to its annotation, and detached from those that are removed.
func TestNetworksOfRunningPod(t *testing.T) {
	l := newTwoNetworks(t)
	start := time.Now()
	l.setNetworks("macvlan-conf,macvlan-conf@lan")
	within(t, 10*waitUnit, "interface lan", func() bool {
		return strings.Contains(l.ip("-4", "-br", "addr", "show", "lan"), "10.37.132.21/24")
	})
	t.Logf("attached after %v", time.Since(start).Round(time.Millisecond))
	within(t, 10*waitUnit, "its status", func() bool {
		return strings.Contains(l.annotation(multinet.StatusKey), `"interface": "lan"`)
	})
	l.setNetworks("macvlan-conf@lan,nonsuch")
	within(t, 10*waitUnit, "the end of net1", func() bool { return !strings.Contains(l.ip("-br", "link"), "net1") })
	within(t, 10*waitUnit, "its status", func() bool {
		return !strings.Contains(l.annotation(multinet.StatusKey), `"interface": "net1"`)
	})
	l.wantEvent("Normal RemovedInterface: Remove net1 of default/macvlan-conf")
	l.wantEvent(
		"Warning NoNetworkFound: annotation k8s.v1.cni.cncf.io/networks: element 2: network default/nonsuch: there is no NetworkAttachmentDefinition nonsuch in namespace default",
	)
	l.setNetworks("[oops")
	l.wantEvent(
		"Warning FailedNetwork: annotation k8s.v1.cni.cncf.io/networks: line 1 column 2: invalid character 'o' looking for beginning of value",
	)
	if out := l.ip("-br", "link"); !strings.Contains(out, "lan") {
		t.Errorf("a malformed annotation has detached a network: %s", out)
	}
	must(t, "lab", "down", "--dir", l.dir)
}

// If a network is edited, its pods get an event; their interfaces do not change.
func TestEditedNetwork(t *testing.T) {
	l := newTwoNetworks(t)
	key := store.NetworkAttachments().Key("default", "macvlan-conf")
	_, err := l.store.Modify(t.Context(), key, func(fields map[string]any) error {
		spec := fields["spec"].(map[string]any)
		spec["config"] = strings.Replace(spec["config"].(string), "10.37.132.20", "10.37.132.40", 1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.wantEvent(
		"Normal NetworkEdited: Network default/macvlan-conf was edited: net1 stays as it is, new attachments get the new configuration",
	)
	l.setNetworks("macvlan-conf,macvlan-conf@lan")
	within(t, 10*waitUnit, "interface lan", func() bool {
		return strings.Contains(l.ip("-4", "-br", "addr", "show", "lan"), "10.37.132.40/24")
	})
	if out := l.ip("-4", "-br", "addr", "show", "net1"); !strings.Contains(out, "10.37.132.20/24") {
		t.Errorf("net1: %s", out)
	}
	must(t, "lab", "down", "--dir", l.dir)
}
