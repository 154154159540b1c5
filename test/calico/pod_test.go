// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const namespace = "shop"

// pod is a pod, created as by the kubelet and its runtime.
type pod struct {
	n    *node
	name string
	// in is its namespace.
	in   string
	ns   *netns.NS
	addr netip.Addr   // the first one
	all  []netip.Addr // one per family
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
	conf *libcni.RuntimeConf
}

// pod attaches a new pod with the runtime's current configuration.
func (n *node) pod(name string, labels fields) *pod {
	n.c.t.Helper()
	return n.podWith(name, labels, n.network(), n.c.calico, filepath.Join(nettest.Programs(n.c.t), "cni"))
}

// podWith attaches a new pod with a configuration and the plugins of some directories.
func (n *node) podWith(name string, labels fields, list *libcni.NetworkConfigList, programs ...string) *pod {
	return n.podOf(fields{
		"metadata": fields{"namespace": namespace, "name": name, "labels": labels},
		"spec":     fields{"containers": []fields{{"name": "c", "image": "i"}}},
	}, list, programs...)
}

// podOf attaches the pod of an object.
func (n *node) podOf(o fields, list *libcni.NetworkConfigList, programs ...string) *pod {
	c := n.c
	c.t.Helper()
	meta := o["metadata"].(fields)
	name, in := meta["name"].(string), meta["namespace"].(string)
	o["spec"].(fields)["nodeName"] = n.name
	path := "/api/v1/namespaces/" + in + "/pods"
	c.Do(http.MethodPost, path, o)
	p := &pod{n: n, name: name, in: in, ns: nettest.NS(c.t, name+fmt.Sprint(len(c.owners))), list: list}
	ip(c.t, p.ns, "link set lo up")
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: io.Discard}} // discard the logs of Calico's plugin
	p.cni = libcni.NewCNIConfigWithCacheDir(programs, filepath.Join(n.dir, "cache"), exec)
	id := fmt.Sprintf("id-%s-%d", name, time.Now().UnixNano())
	p.conf = &libcni.RuntimeConf{ContainerID: id, NetNS: p.ns.Path(), IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", in}, {"K8S_POD_NAME", name}, {"K8S_POD_INFRA_CONTAINER_ID", id},
	}}
	p.add()
	var ips []fields
	for _, a := range p.all {
		if owner := c.owners[a]; owner != "" {
			c.t.Fatalf("%s got the address %s, which is allocated to %s", name, a, owner)
		}
		c.owners[a] = name
		ips = append(ips, fields{"ip": a.String()})
	}
	c.Do(http.MethodPatch, path+"/"+name+"/status", fields{"status": fields{
		"phase": "Running", "podIP": p.addr.String(), "podIPs": ips,
	}})
	return p
}

// network returns the configuration that a runtime uses: the first one.
func (n *node) network() *libcni.NetworkConfigList {
	n.c.t.Helper()
	files, err := libcni.ConfFiles(n.confDir(), []string{".conflist"})
	if err != nil || len(files) == 0 {
		n.c.t.Fatalf("%s: no network: %v", n.name, err)
	}
	slices.Sort(files)
	list, err := libcni.ConfListFromFile(files[0])
	if err != nil {
		n.c.t.Fatal(err)
	}
	return list
}

func (n *node) confDir() string { return filepath.Join(n.dir, "net.d") }

// installCalicoConfig installs the runtime's configuration, as Calico's installer does.
func (n *node) installCalicoConfig() {
	n.c.t.Helper()
	text := fmt.Sprintf(
		`{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[{"type":"calico","log_level":"warning","log_file_path":%q,"datastore_type":"kubernetes",
		"nodename":%q,"mtu":1450,"ipam_lock_file":%q,"ipam":{"type":"calico-ipam","assign_ipv4":"%t","assign_ipv6":"%t"},"policy":{"type":"k8s"},"kubernetes":{"kubeconfig":%q}}]}`,
		filepath.Join(n.dir, "cni.log"), n.name, filepath.Join(n.dir, "ipam.lock"), n.families != ipv6, n.families != ipv4, n.c.Kubeconfig(n.c.URL, ""))
	err := os.MkdirAll(n.confDir(), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(n.confDir(), "10-calico.conflist"), []byte(text), 0o600)
	}
	if err != nil {
		n.c.t.Fatal(err)
	}
}

// add retries ADD as the kubelet does, until the limit.
func (p *pod) add() {
	c := p.n.c
	c.t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = p.addOnce(); err == nil {
			return
		}
		_ = p.del()
	}
	c.t.Fatalf("%s on %s: %v", p.name, p.n.name, err)
}

func (p *pod) addOnce() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return p.n.ns.Do(func() error { // plugins are executed in the node's namespace
		out, err := p.cni.AddNetworkList(ctx, p.list, p.conf)
		if err != nil {
			return err
		}
		r, err := current.NewResultFromResult(out)
		if err != nil {
			return err
		}
		p.all = nil
		for _, ip := range r.IPs {
			addr, _ := netip.AddrFromSlice(ip.Address.IP)
			p.all = append(p.all, addr.Unmap())
		}
		slices.SortFunc(p.all, netip.Addr.Compare)
		p.addr = p.all[0]
		if (len(p.all) == 2) != (p.n.families == dual) || p.addr.Is6() != (p.n.families == ipv6) {
			return fmt.Errorf("the pod has the addresses %s", p.all)
		}
		return nil
	})
}

func (p *pod) del() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return p.n.ns.Do(func() error { return p.cni.DelNetworkList(ctx, p.list, p.conf) })
}

// detach removes a pod; list is the configuration that the runtime uses for DEL.
func (p *pod) detach(list *libcni.NetworkConfigList) {
	c := p.n.c
	c.t.Helper()
	p.list = list
	if err := p.del(); err != nil {
		c.t.Errorf("DEL of %s by %s: %v", p.name, list.Name, err)
	}
	_, _ = nettest.Try(p.ns, "ip", "link", "del", "eth0") // as with its namespace
	c.Do(http.MethodDelete, "/api/v1/namespaces/"+p.in+"/pods/"+p.name+"?gracePeriodSeconds=0", nil)
	for _, a := range p.all {
		delete(c.owners, a)
	}
}
