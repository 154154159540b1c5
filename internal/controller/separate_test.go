// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// split is a real API server with the rights of the manifests, on which the controller and agents' engines have tokens
// of their own.
type split struct {
	*apitest.Server
	t    *testing.T
	log  *lines
	pods int
	// last is the engine that was started last.
	last *blocks.Engine
}

// lines is a log that is looked into.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newSplit(t *testing.T) *split {
	t.Helper()
	s := &split{Server: apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1")), t: t, log: &lines{}}
	files, err := filepath.Glob("../../deploy/crds/weft.dev_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s.DefineKind(text)
	}
	s.DefineKind(
		fmt.Appendf(nil, strings.Replace(calicoKind, "scope: Cluster", "scope: Namespaced", 1), "kubevirt.io", "v1",
			"virtualmachines", "VirtualMachine", "virtualmachine"),
	)
	for _, file := range []string{"rbac", "admission", "controller"} {
		text, err := os.ReadFile("../../deploy/base/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			s.apply(doc)
		}
	}
	for i := 1; i <= 3; i++ {
		s.Do(http.MethodPost, "/api/v1/nodes", fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n%d"}}`, i))
	}
	agent, controller := s.as("weft", "n2"), s.as("weft-controller", "n1")
	s.until("the policies are in force", func() bool {
		o, err := store.AddressBlockObject(store.Object{}, model.AddressBlock{
			Pool: "p", CIDR: netip.MustParsePrefix("10.1.0.0/26"), Node: "n1", Claim: "1",
		})
		if err == nil {
			_, err = agent.Create(t.Context(), store.AddressBlocks(), o)
		}
		if err == nil {
			s.Do(http.MethodDelete, allBlocks+"/"+o.Key.Name, nil)
		}
		return err != nil && strings.Contains(err.Error(), "for its own node only")
	})
	s.until("the controller has its rights", func() bool {
		_, err := controller.List(t.Context(), store.AddressPools())
		return err == nil
	})
	return s
}

// apply makes an object of the manifests.
func (s *split) apply(doc string) {
	s.t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		s.t.Fatal(err)
	}
	var head struct{ APIVersion, Kind string }
	if err := json.Unmarshal(raw, &head); err != nil {
		s.t.Fatal(err)
	}
	path := map[string]string{
		"ServiceAccount":                   "/api/v1/namespaces/kube-system/serviceaccounts",
		"Role":                             "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles",
		"RoleBinding":                      "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings",
		"ClusterRole":                      "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"ClusterRoleBinding":               "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
		"Deployment":                       "/apis/apps/v1/namespaces/kube-system/deployments",
	}[head.Kind]
	s.Do(http.MethodPost, path, string(raw))
}

// as is the server for a pod of an account on a node.
func (s *split) as(account, node string) store.Objects {
	s.t.Helper()
	s.pods++
	name := fmt.Sprint(account, "-", s.pods)
	var pod struct{ Metadata struct{ UID string } }
	raw := s.Do(http.MethodPost, "/api/v1/namespaces/kube-system/pods", fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"nodeName":%q,"serviceAccountName":%q,"containers":[{"name":"c","image":"i"}]}}`, name, node, account))
	if err := json.Unmarshal(raw, &pod); err != nil {
		s.t.Fatal(err)
	}
	k, err := kube.Open(kube.Config{
		Access: kube.Access{
			Kubeconfig: s.Kubeconfig(s.URL, s.Token("kube-system", account, "Pod", name, pod.Metadata.UID)), Getenv: os.Getenv,
		},
		Node: node, Agent: "weft-test", Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return k.Objects()
}

// engine is that of a node's agent. Pods of virtual machines are deleted as soon as they have addresses. It runs until
// the test ends, or until it is stopped.
func (s *split) engine(node string) (add func(conf, id string, vm *model.VMRef) ([]netip.Addr, error), stop func()) {
	s.t.Helper()
	e, err := blocks.Open(blocks.Config{
		Objects: s.as("weft", node), Node: node, Dir: s.t.TempDir(),
		Log: slog.New(slog.NewTextHandler(s.log, nil)).With("node", node),
		Now: time.Now, After: time.After, Random: rand.Reader, Cooldown: 50 * time.Millisecond, Idle: 300 * time.Millisecond,
		NodeGoneAfter: 100 * time.Millisecond,
		VMsKnown:      true, SeparateController: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.last = e
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() { _ = e.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	s.t.Cleanup(stop)
	return func(conf, id string, vm *model.VMRef) ([]netip.Addr, error) {
		which := 1
		if strings.Contains(conf, poolconf.TypeCalico) {
			which = 2
		}
		ask := ipam.Request{
			Conf: json.RawMessage(conf), Network: "net", ContainerID: id, IfName: "eth0", VM: vm,
			Args: [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", id}},
		}
		result, err := e.Allocators()[which].Add(s.t.Context(), ask)
		var out []netip.Addr
		for _, ip := range result.IPs {
			out = append(out, ip.Address.Addr())
		}
		if ask.Held = out; vm != nil && err == nil { // the VM's pod is deleted at once
			err = e.Allocators()[which].Del(s.t.Context(), ask)
		}
		return out, err
	}, stop
}

// control runs the controller until the test ends, or until it is stopped.
func (s *split) control(name string) (stop func()) {
	c := New(Config{
		Objects: s.as("weft-controller", "n1"), Identity: name, Separate: true, Node: "n1", Every: 200 * time.Millisecond,
		Check: time.Second, NodeGoneAfter: 2 * time.Second,
		Pools: []model.AddressPool{{
			Name: "pods", AssignmentMode: model.AssignAutomatic,
			Regions: []model.AddressRegion{{CIDR: netip.MustParsePrefix("10.77.0.0/26"), BlockSize: 28}},
		}},
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Now: time.Now, After: time.After,
	})
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() { _ = c.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	s.t.Cleanup(stop)
	return stop
}

func (s *split) until(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within a minute: %s\n%s", what, s.log)
		}
	}
}

const (
	sharedRange = `{"cniVersion":"1.0.0","name":"net","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/27"}}`
	ofCluster   = `{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"calico-ipam"}}`
	allBlocks   = "/apis/weft.dev/v1alpha1/addressblocks"
	allRequests = "/apis/weft.dev/v1alpha1/addresspoolrequests"
)

// TestApart: agents with the rights of the manifests give addresses by what the controller does with its own: it makes
// pools and adds what agents ask for, and only by its word they take the blocks of a node that is gone. Nothing that
// either wants to do is forbidden.
func TestApart(t *testing.T) {
	nettest.EndToEnd(t)
	s := newSplit(t)
	add1, _ := s.engine("n1")
	add2, stop2 := s.engine("n2")
	add3, stop3 := s.engine("n3")
	if _, err := add1(sharedRange, "early", nil); err == nil ||
		!strings.Contains(err.Error(), "Deployment weft-controller") {
		t.Fatalf("without a controller: %v", err)
	}
	stop := s.control("first")
	given := map[netip.Addr]string{}
	take := func(add func(string, string, *model.VMRef) ([]netip.Addr, error), conf, id string) error {
		addrs, err := add(conf, id, nil)
		for _, a := range addrs {
			if other, twice := given[a]; twice {
				t.Errorf("%s has %s of %s", id, a, other)
			}
			given[a] = id
		}
		return err
	}
	eventually := func(add func(string, string, *model.VMRef) ([]netip.Addr, error), conf, id string) {
		t.Helper()
		s.until(id+" has an address", func() bool { return take(add, conf, id) == nil })
	}
	eventually(add1, sharedRange, "a1")
	eventually(add2, sharedRange, "b1")
	eventually(add3, sharedRange, "c1")
	eventually(add1, ofCluster, "pod")
	s.until("requests are granted, but for that of Calico's pools", func() bool {
		return strings.Count(string(s.Do(http.MethodGet, allRequests, nil)), `"cidr"`) == 0
	})
	// Node n2 is silent, node n3 is gone. Node n1 gets what n3 had, by the controller's word.
	stop2()
	stop3()
	stop()
	var full error
	for i := 0; full == nil; i++ {
		full = take(add1, sharedRange, fmt.Sprint("more", i))
	}
	s.Do(http.MethodDelete, "/api/v1/nodes/n3", nil)
	for i := range 3 {
		if err := take(add1, sharedRange, fmt.Sprint("orphan", i)); err == nil {
			t.Error("an agent decides alone that a node is gone")
		}
	}
	maps.DeleteFunc(given, func(_ netip.Addr, id string) bool { return id == "c1" }) // that pod is gone with its node
	s.control("second")
	eventually(add1, sharedRange, "heir")
	for full = nil; full == nil; {
		full = take(add1, sharedRange, fmt.Sprint("heir", len(given)))
	}
	var all struct {
		Items []struct {
			Spec struct{ Node, Pool, CIDR string }
		}
	}
	if err := json.Unmarshal(s.Do(http.MethodGet, allBlocks, nil), &all); err != nil {
		t.Fatal(err)
	}
	owners := map[string]int{}
	for _, b := range all.Items {
		if b.Spec.Pool == "whereabouts" {
			owners[b.Spec.Node]++
		}
	}
	if owners["n2"] == 0 || owners["n3"] != 0 || owners["n1"] == 0 {
		t.Errorf("blocks by node: %v", owners)
	}
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, "forbidden") || strings.Contains(line, "denied request") {
			t.Error(line)
		}
	}
}

// TestSeparateVMClaims: the controller deletes the claim of a previous virtual machine of the same name, and releases
// an address that is in no pool any more; agents, which may not, get the VM's next addresses all the same.
func TestSeparateVMClaims(t *testing.T) {
	nettest.EndToEnd(t)
	s := newSplit(t)
	s.control("c")
	add, _ := s.engine("n1")
	vm := func(uid string) *model.VMRef { return &model.VMRef{Namespace: "default", Name: "db", UID: uid} }
	vms := "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
	make := func() string {
		var vm struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(
			s.Do(http.MethodPost, vms, `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"db"}}`), &vm,
		); err != nil {
			t.Fatal(err)
		}
		return vm.Metadata.UID
	}
	has := func(id, uid string) (out netip.Addr) {
		t.Helper()
		s.until("the machine has an address in "+id, func() bool {
			addrs, err := add(ofCluster, id, vm(uid))
			if err != nil {
				fmt.Fprintln(s.log, err)
				return false
			}
			out = addrs[0]
			return true
		})
		return out
	}
	uid := make()
	first := has("pod1", uid)
	if again := has("pod1 again", uid); again != first {
		t.Errorf("the machine has %s, and had %s", again, first)
	}
	s.Do(http.MethodDelete, vms+"/db", nil)
	claims := func() string { return string(s.Do(http.MethodGet, "/apis/weft.dev/v1alpha1/addressclaims", nil)) }
	next := make()
	if next == uid {
		t.Fatal("one machine has the uid of another one")
	}
	has("pod2", next)
	if text := claims(); strings.Contains(text, uid) || !strings.Contains(text, next) {
		t.Errorf("claims: %s", text)
	}
	// Another pool is the cluster's now.
	s.Do(http.MethodPost, pools, `{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"other"},
		"spec":{"assignmentMode":"Automatic","regions":[{"cidr":"10.78.0.0/24","blockSize":28}]}}`)
	s.Do(http.MethodPatch, pools+"/pods", `{"spec":{"disabled":true}}`)
	s.until("the machine has an address of the other pool", func() bool {
		addrs, err := add(ofCluster, "pod3", vm(next))
		return err == nil && netip.MustParsePrefix("10.78.0.0/24").Contains(addrs[0])
	})
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, "forbidden") || strings.Contains(line, "denied request") {
			t.Error(line)
		}
	}
}
