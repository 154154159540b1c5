// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const (
	deniedPort  = 7000
	allowedPort = 7001
)

// counter counts the datagrams that arrive at the two ports of a place.
type counter struct{ denied, allowed atomic.Int64 }

func listen(t *testing.T, ns *netns.NS) *counter {
	t.Helper()
	c := &counter{}
	for port, n := range map[int]*atomic.Int64{deniedPort: &c.denied, allowedPort: &c.allowed} {
		var in *net.UDPConn
		err := ns.Do(func() (err error) {
			in, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close() })
		go func() {
			for b := make([]byte, 16); ; n.Add(1) {
				if _, err := in.Read(b); err != nil {
					return
				}
			}
		}()
	}
	return c
}

// sends is a program that sends to both ports of an address as fast as it can, with or without a network, until it is
// stopped. Each datagram belongs to a new connection, because established ones may continue.
func sends(t *testing.T, ns *netns.NS, to netip.Addr) (sent *atomic.Int64, stop func()) {
	t.Helper()
	sent, end, ended := &atomic.Int64{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = ns.Do(func() error {
			for {
				select {
				case <-end:
					return nil
				default:
				}
				for _, port := range []uint16{deniedPort, allowedPort} {
					// On the thread that is in the namespace: a dialer would go elsewhere.
					if c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port))); err == nil {
						_, _ = c.Write([]byte("x")) // the pod's own rules may refuse it at once
						if _ = c.Close(); port == deniedPort {
							sent.Add(1)
						}
					}
				}
			}
		})
	}()
	return sent, func() { close(end); <-ended }
}

// TestSenders: a program in a pod's namespace sends from before the ADD until after the DEL, and another pod sends to
// it all the while. No denied packet arrives, in either direction, not even while the agent does not run or starts.
func TestSenders(t *testing.T) {
	nettest.EndToEnd(t)
	for name, plugin := range map[string]string{
		"routed": `{"type":"calico","ipam":%s}`, "ptp": `{"type":"ptp","ipam":%s}`,
		"bridge": `{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipam":%s}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			store := t.TempDir()
			manifest := func(name, text string) {
				if err := os.WriteFile(store+"/"+name+".yaml", []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			manifest("ns",
				"{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {kubernetes.io/metadata.name: shop}}}")
			for _, pod := range []string{"peer", "busy"} {
				manifest(
					pod,
					fmt.Sprintf(
						"{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: shop, uid: uid-%s, labels: {app: %s}}, spec: {nodeName: n1}}", pod, pod, pod,
					),
				)
			}
			manifest(
				"policy",
				fmt.Sprintf(
					`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: narrow, namespace: shop}, spec: {
				podSelector: {matchLabels: {app: busy}}, policyTypes: [Ingress, Egress],
				ingress: [{ports: [{protocol: UDP, port: %d}]}], egress: [{ports: [{protocol: UDP, port: %d}]}]}}`, allowedPort, allowedPort))
			w.args = []string{"--store-dir", store}
			w.start()
			list := w.list("1.0.0", fmt.Sprintf(plugin, w.ipam("10.9.0.0/24")))
			peer, peerAddr := w.shopPod(list, "peer", nettest.NS(t, "peer"))
			atPeer := listen(t, peer)
			for round := range 3 {
				w.busyPod(list, round, peer, peerAddr, atPeer)
			}
		})
	}
}

// shopPod attaches a pod of the namespace shop. It retries while the agent's policies are not synced.
func (w *world) shopPod(list *libcni.NetworkConfigList, name string, ns *netns.NS) (*netns.NS, netip.Addr) {
	w.t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conf := runtimeConf("id-"+name, ns)
		conf.Args = [][2]string{
			{"K8S_POD_NAMESPACE", "shop"},
			{"K8S_POD_NAME", name},
			{"K8S_POD_UID", "uid-" + name},
			{"K8S_POD_INFRA_CONTAINER_ID", conf.ContainerID},
		}
		r, err := w.cni.AddNetworkList(w.ctx(), list, conf)
		if err == nil {
			res, err := current.NewResultFromResult(r)
			if err != nil {
				w.t.Fatal(err)
			}
			addr, _ := netip.AddrFromSlice(res.IPs[0].Address.IP.To4())
			return ns, addr
		}
		if time.Now().After(until) || code(err) != 11 {
			w.t.Fatalf("ADD of %s: %v: %s", name, err, w.log())
		}
	}
}

// busyPod runs one instance of the pod that sends all the time.
func (w *world) busyPod(
	list *libcni.NetworkConfigList, round int, peer *netns.NS, peerAddr netip.Addr, atPeer *counter,
) {
	t := w.t
	t.Helper()
	ns := nettest.NS(t, fmt.Sprintf("busy%d", round))
	nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
	atBusy := listen(t, ns)
	before := atPeer.allowed.Load()
	sent, stop := sends(t, ns, peerAddr)
	defer stop()
	_, addr := w.shopPod(list, "busy", ns)
	_, stopPeer := sends(t, peer, addr)
	defer stopPeer()
	passes := func(what string) {
		t.Helper()
		out, in, n := atPeer.allowed.Load(), atBusy.allowed.Load(), sent.Load()
		for until := time.Now().Add(30 * time.Second); atPeer.allowed.Load() < out+20 || atBusy.allowed.Load() < in+20 ||
			sent.Load() < n+20; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("round %d, %s: nothing passes of what is allowed: %d out, %d in: %s", round, what,
					atPeer.allowed.Load()-out, atBusy.allowed.Load()-in, w.log())
			}
		}
	}
	passes("after ADD")
	if round == 1 {
		w.kill()
		passes("without an agent")
		w.start()
		passes("with a new agent")
	}
	conf := runtimeConf("id-busy", ns)
	if err := w.cni.DelNetworkList(w.ctx(), list, conf); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if n, m := atPeer.denied.Load(), atBusy.denied.Load(); n > 0 || m > 0 {
		t.Errorf("round %d: %d denied packets arrived at the peer, %d at the pod (%d were sent)", round, n, m, sent.Load())
	}
	if atPeer.allowed.Load() == before {
		t.Error("nothing was sent at all")
	}
}
