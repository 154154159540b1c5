// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// kubelet is the kubelet's part in devices: it registers device plugins, allocates, and stores what it has allocated.
type kubelet struct {
	deviceplugin.UnimplementedRegistrationServer
	t    *testing.T
	dir  string
	ids  chan []string // the devices of each registration
	plug deviceplugin.DevicePluginClient
	pods []map[string]any
}

const macvtapResource = "macvtap.network.kubevirt.io/dataplane"

func newKubelet(t *testing.T, root string) *kubelet {
	t.Helper()
	k := &kubelet{t: t, dir: filepath.Join(root, "var/lib/kubelet/device-plugins"), ids: make(chan []string, 10)}
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(k.dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	deviceplugin.RegisterRegistrationServer(s, k)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return k
}

func (k *kubelet) Register(_ context.Context, q *deviceplugin.RegisterRequest) (*deviceplugin.Empty, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.dir, q.GetEndpoint()),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	k.t.Cleanup(func() { _ = conn.Close() })
	plug := deviceplugin.NewDevicePluginClient(conn)
	stream, err := plug.ListAndWatch(k.t.Context(), &deviceplugin.Empty{})
	if err != nil {
		return nil, err
	}
	all, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, d := range all.GetDevices() {
		ids = append(ids, d.GetID())
	}
	k.plug = plug
	k.ids <- ids
	return &deviceplugin.Empty{}, nil
}

// registered returns the devices of the next registration.
func (k *kubelet) registered() []string {
	k.t.Helper()
	select {
	case ids := <-k.ids:
		return ids
	case <-time.After(time.Minute):
		k.t.Fatal("no registration")
		return nil
	}
}

// allocate allocates a device to a pod and returns the file that its container may open.
func (k *kubelet) allocate(uid, id string) string {
	k.t.Helper()
	got, err := k.plug.Allocate(k.t.Context(), &deviceplugin.AllocateRequest{
		ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: []string{id}}},
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.pods = append(k.pods, map[string]any{
		"PodUID": uid, "ContainerName": "compute", "ResourceName": macvtapResource, "DeviceIDs": map[string][]string{"-1": {id}},
	})
	b, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": k.pods}})
	if err == nil {
		err = os.WriteFile(filepath.Join(k.dir, "kubelet_internal_checkpoint"), b, 0o644)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return got.GetContainerResponses()[0].GetDevices()[0].GetHostPath()
}

// macvtapPod writes a pod with a macvtap.
func (p *podnets) macvtapPod(name, selection string) {
	p.t.Helper()
	p.object("pod-"+name, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"namespace": "default", "name": name, "uid": "uid-" + name,
			"annotations": map[string]any{"k8s.v1.cni.cncf.io/networks": selection},
		},
		"spec": map[string]any{"nodeName": "n1", "containers": []any{map[string]any{"name": "c", "image": "i"}}},
	})
}

// TestMacvtap: the agent offers macvtaps to the kubelet by macvtap-cni's configuration; an allocation creates nothing; the
// ADD of the pod creates the link with the index of the file that the container may open, also when it is repeated or the
// agent was killed after the allocation; two of them reach each other; and a deleted pod leaves nothing.
func TestMacvtap(t *testing.T) {
	nettest.Need(t, "macvtap")
	nettest.NeedDevices(t)
	p := newPodnets(t)
	root := p.path("root")
	k := newKubelet(t, root)
	conf := p.path("macvtaps")
	p.write(conf, `[{"name": "dataplane", "lowerDevice": "up0", "mode": "bridge", "capacity": 4}]`)
	p.write(p.path("weft.yaml"), "install: {hostRoot: "+root+"}\nvirtualMachines: {macvtaps: "+conf+"}\n")
	p.args = append(p.args, "--config", p.path("weft.yaml"))
	p.object("network-dataplane", map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{
			"namespace": "default", "name": "dataplane",
			"annotations": map[string]any{"k8s.v1.cni.cncf.io/resourceName": macvtapResource},
		},
		"spec": map[string]any{"config": `{"cniVersion":"0.3.1","name":"dataplane","type":"macvtap","mtu":1400,"promiscMode":true}`},
	})
	p.start()
	ids := k.registered()
	if len(ids) != 4 {
		t.Fatalf("devices %v", ids)
	}
	before := linkNames(t, p.node)
	file := k.allocate("uid-a", ids[0])
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s after the allocation: %v", file, err)
	}
	p.kill()
	p.start()
	if again := k.registered(); strings.Join(again, " ") != strings.Join(ids, " ") {
		t.Errorf("after a restart: %v, was %v", again, ids)
	}
	const mac = "02:00:00:00:77:01"
	p.macvtapPod("a", `[{"name":"dataplane","interface":"pod123","mac":"`+mac+`"}]`)
	p.macvtapPod("b", "dataplane")
	ns, other := nettest.NS(t, "a"), nettest.NS(t, "b")
	if err := p.addWithUID("a", ns); err != nil {
		t.Fatal(err, p.log())
	}
	link := nettest.Run(t, ns, "ip", "-d", "link", "show", "pod123")
	for _, want := range []string{
		strings.TrimPrefix(file, "/dev/tap") + ": pod123@", mac, "mtu 1400", "PROMISC", "UP", "macvtap mode bridge",
	} {
		if !strings.Contains(link, want) {
			t.Errorf("the link lacks %q: %s", want, link)
		}
	}
	if addrs := nettest.Run(t, ns, "ip", "-o", "addr", "show", "dev", "pod123"); addrs != "" {
		t.Errorf("the pod's kernel has addresses and would speak as the guest: %s", addrs)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != 107 || s.Gid != 107 || info.Mode()&fs.ModeCharDevice == 0 {
		t.Errorf("%s: %v of %d:%d", file, info.Mode(), s.Uid, s.Gid)
	}
	// The runtime repeats a sandbox of the same pod: the kubelet does not allocate again.
	if err := p.delWithUID("a", ns); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after DEL: %v", file, err)
	}
	if err := p.addWithUID("a", ns); err != nil {
		t.Fatal(err, p.log())
	}
	k.allocate("uid-b", ids[1])
	if err := p.addWithUID("b", other); err != nil {
		t.Fatal(err, p.log())
	}
	p.reach(ns, "pod123", other, "net1")
	if rules := nettest.Run(t, ns, "nft", "list", "tables"); strings.Contains(rules, "weft-policy") {
		t.Errorf("rules of a pod that no policy selects: %s", rules)
	}

	// A policy selects a pod on the network.
	p.object("policy", map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1beta1", "kind": "MultiNetworkPolicy",
		"metadata": map[string]any{
			"namespace": "default", "name": "d", "annotations": map[string]any{"k8s.v1.cni.cncf.io/policy-for": "dataplane"},
		},
		"spec": map[string]any{"podSelector": map[string]any{}, "policyTypes": []string{"Ingress"}},
	})
	p.macvtapPod("d", "dataplane")
	k.allocate("uid-d", ids[2])
	selected := nettest.NS(t, "d")
	if err := p.addWithUID("d", selected); err != nil {
		t.Fatal(err, p.log())
	}
	// The agent may hear of the policy after the pod.
	var rules string
	for limit := time.Now().Add(30 * time.Second); !strings.Contains(rules, "netdev weft-policy-net1"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("rules of a pod that a policy selects: %s\n%s", rules, p.log())
		}
		rules = nettest.Run(t, selected, "nft", "list", "tables")
	}
	if err := p.delWithUID("d", selected); err != nil {
		t.Fatal(err, p.log())
	}

	// A pod without a device.
	p.macvtapPod("c", "dataplane")
	bare := nettest.NS(t, "c")
	err = p.addWithUID("c", bare)
	if err == nil || !strings.Contains(err.Error(), "the pod has no device of resource "+macvtapResource) {
		t.Errorf("a pod without a device: %v", err)
	}
	_ = p.delWithUID("c", bare)

	// The sandbox of one is killed with its namespace, the other one is deleted.
	p.kill()
	p.start()
	k.registered()
	if err := p.delWithUID("b", other); err != nil {
		t.Fatal(err, p.log())
	}
	if err := p.delWithUID("a", ns); err != nil {
		t.Fatal(err, p.log())
	}
	for _, id := range ids {
		index, _, _ := strings.Cut(strings.TrimPrefix(id, "tap"), "-")
		if _, err := os.Stat("/dev/tap" + index); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("/dev/tap%s is left: %v", index, err)
		}
	}
	if diff := p.reads(func() string { return linkNames(t, p.node) }, before); diff != "" {
		t.Errorf("links of the node: %s", diff)
	}
	p.stop()
	if left, _ := filepath.Glob(filepath.Join(k.dir, "weft*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// addWithUID and delWithUID are a runtime's calls, which have the pod's UID.
func (p *podnets) addWithUID(pod string, ns *netns.NS) error {
	list, conf := p.runtimes(pod, ns)
	conf.Args = append(conf.Args, [2]string{"K8S_POD_UID", "uid-" + pod})
	_, err := p.cni.AddNetworkList(p.ctx(), list, conf)
	return err
}

func (p *podnets) delWithUID(pod string, ns *netns.NS) error {
	list, conf := p.runtimes(pod, ns)
	conf.Args = append(conf.Args, [2]string{"K8S_POD_UID", "uid-" + pod})
	return p.cni.DelNetworkList(p.ctx(), list, conf)
}

func (p *podnets) write(path, text string) {
	p.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// reach pings from one pod's link to the other's and back.
func (p *podnets) reach(a *netns.NS, linkA string, b *netns.NS, linkB string) {
	p.t.Helper()
	nettest.IP(p.t, a, "addr add 192.0.2.1/24 dev "+linkA)
	nettest.IP(p.t, b, "addr add 192.0.2.2/24 dev "+linkB)
	nettest.Run(p.t, a, "ping", "-c1", "-W10", "192.0.2.2")
	nettest.Run(p.t, b, "ping", "-c1", "-W10", "192.0.2.1")
}

// linkNames returns the names of a namespace's links; their states follow later.
func linkNames(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var names []string
	for line := range strings.Lines(nettest.Run(t, ns, "ip", "-br", "link")) {
		names = append(names, strings.Fields(line)[0])
	}
	return strings.Join(names, " ")
}
