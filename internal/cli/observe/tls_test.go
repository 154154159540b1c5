// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cli/observe"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/flowserver"
	"github.com/weft-net/weft/internal/node/observer"
)

// neighbors are the lines of a node with pods of two namespaces, a VM, and its own connections.
func neighbors() []flow.Line {
	pod := func(name string) flow.Identity { return flow.Identity{Kind: flow.PodEnd, Name: name, Node: "node1"} }
	policy := func(direction, name string) flow.Decision {
		return flow.Decision{Direction: direction, Allowed: true, Rule: -1, Policies: []model.PolicyKey{{Namespace: "shop", Name: name}}}
	}
	record := func(second int, from, to flow.Endpoint) flow.Line {
		return flow.Line{Flow: &flow.Record{
			Time: at(second), Node: "node1", Kind: flow.New, Protocol: "tcp", From: from, To: to, Verdict: flow.Allowed,
			Direction: flow.Local, Decisions: []flow.Decision{policy(flow.Egress, "out"), policy(flow.Ingress, "in")},
		}}
	}
	holder := func(addr, name string) flow.Line {
		id := pod(name)
		return flow.Line{Holder: &flow.Holder{Time: at(0), Addr: netip.MustParseAddr(addr), Identity: &id}}
	}
	web, db, bank := end("10.42.1.2", 0, pod("shop/web")), end("10.42.1.3", 5432, pod("shop/db")), end("10.42.1.4", 443, pod("bank/api"))
	vm := end("10.42.1.5", 22, flow.Identity{Kind: flow.VMEnd, Name: "bank/vault", Pod: "bank/launcher", Node: "node1"})
	node := end("172.18.0.1", 6443, flow.Identity{Kind: flow.NodeEnd, Name: "node1", Node: "node1"})
	service := end("10.96.0.9", 443, flow.Identity{Kind: flow.ServiceEnd, Name: "bank/api"})
	through := record(5, web, bank)
	through.Flow.Via = &service
	return []flow.Line{
		{Begin: &flow.Begin{Node: "node1", Level: "off", Notes: []string{"interfaces that may bypass: bank/vault eth0"}}},
		holder("10.42.1.2", "shop/web"), holder("10.42.1.4", "bank/api"), {Known: true},
		record(1, web, db), record(2, web, bank), record(3, bank, vm), record(4, web, node), through, record(6, bank, node),
		{Lost: &flow.Lost{Time: at(7), Node: "node1", New: 17}},
	}
}

// market is a real API server with accounts, and the TLS listener of node1's agent.
type market struct {
	*apitest.Server
	t      *testing.T
	tokens map[string]string
	// now is the listener's time.
	now time.Time
}

func (m *market) post(path, format string, args ...any) {
	m.t.Helper()
	m.Do(http.MethodPost, path, fmt.Sprintf(format, args...))
}

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

// newMarket returns one with accounts that may list nodes and their listeners: a seller, who may get flows of namespace shop, an auditor, who may
// get all, and a guest.
func newMarket(t *testing.T) *market {
	m := &market{apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1")), t, map[string]string{}, time.Now()}
	kind, err := os.ReadFile("../../../deploy/crds/weft.dev_flowlisteners.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m.DefineKind(kind)
	m.post(rbacPath+"clusterroles",
		`{"metadata": {"name": "flows"}, "rules": [{"apiGroups": ["weft.dev"], "resources": ["flows"], "verbs": ["get"]}]}`)
	m.post(rbacPath+"clusterroles",
		`{"metadata": {"name": "nodes"}, "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
			{"apiGroups": ["weft.dev"], "resources": ["flowlisteners"], "verbs": ["list"]}]}`)
	m.post("/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
	const inDefault = "/api/v1/namespaces/default/"
	for _, name := range []string{"seller", "auditor", "guest"} {
		m.post(inDefault+"serviceaccounts", `{"metadata": {"name": %q}}`, name)
		m.post(inDefault+"secrets", `{"metadata": {"name": %q}}`, name)
		var secret struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(m.Do(http.MethodGet, inDefault+"secrets/"+name, nil), &secret); err != nil {
			t.Fatal(err)
		}
		m.tokens[name] = m.Token("default", name, "Secret", name, secret.Metadata.UID)
		m.bind("clusterrolebindings", "nodes", name)
	}
	m.bind("namespaces/shop/rolebindings", "flows", "seller")
	m.bind("clusterrolebindings", "flows", "auditor")
	return m
}

// bind grants an account the rights of a ClusterRole.
func (m *market) bind(path, role, account string) {
	m.t.Helper()
	m.post(rbacPath+path, `{"metadata": {"name": "%s-%s"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": %q},
		"subjects": [{"kind": "ServiceAccount", "name": %q, "namespace": "default"}]}`, role, account, role, account)
}

// node creates a Node with the address of the host's loopback interface.
func (m *market) node(name string) {
	m.t.Helper()
	m.post("/api/v1/nodes", `{"metadata": {"name": %q}}`, name)
	m.Do(http.MethodPatch, "/api/v1/nodes/"+name+"/status",
		`{"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}`)
}

// listen starts the listener of node1 at an address. It ends with the test.
func (m *market) listen(address string) {
	m.t.Helper()
	api, err := kube.Open(kube.Config{
		Access: kube.Access{Kubeconfig: m.Kubeconfig(m.URL, ""), Getenv: os.Getenv}, Node: "node1", Agent: "weft-test",
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	soon := func(time.Duration) <-chan time.Time { return time.After(50 * time.Millisecond) }
	server, err := flowserver.New(flowserver.Config{
		Address: address, API: api, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return m.now }, After: soon,
		Publication: flowserver.Publication{
			Node: "node1", Objects: api.Objects(), API: api, Log: slog.New(slog.DiscardHandler), After: soon,
		},
		Flows: func(_ context.Context, values url.Values, to observer.Sink) error {
			if values.Get(observer.ParameterFilter) != "" {
				m.t.Error("the filter is applied to what the caller may not see")
			}
			for _, l := range neighbors() {
				if err := to.Send(l); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	m.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	})
}

// sees runs weft observe --tls with the kubeconfig of an account, and returns what it prints.
func (m *market) sees(account string, args ...string) (flows, said string) {
	m.t.Helper()
	var out, errs strings.Builder
	cmd := observe.NewCmd(ui.Env{Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}, nil)
	cmd.SetArgs(append([]string{"--tls", "-A", "--kubeconfig", m.Kubeconfig(m.URL, m.tokens[account])}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(&errs, err)
	}
	return out.String(), errs.String()
}

// TestListener: who may get flows.weft.dev in a namespace sees, by a real API server's word, the flows of that namespace
// through an agent's TLS listener, and nothing of others: not by names, not by policies, not by filters.
func TestListener(t *testing.T) {
	nettest.EndToEnd(t)
	m := newMarket(t)
	m.node("node1")
	taken, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	m.listen(fmt.Sprintf(":%d", taken.Addr().(*net.TCPAddr).Port))
	if _, said := m.sees("auditor"); !strings.Contains(said, "no agent of the cluster has a listener") {
		t.Errorf("without a listener: %s", said)
	}
	if err := taken.Close(); err != nil { // from now on it can listen
		t.Fatal(err)
	}
	var all, said string
	for deadline := time.Now().Add(time.Minute); strings.Count(all, "\n") == 0; time.Sleep(50 * time.Millisecond) {
		if all, said = m.sees("auditor"); time.Now().After(deadline) {
			t.Fatalf("after a minute the auditor sees %s", said)
		}
	}
	if strings.Count(all, "\n") != 6 || !strings.Contains(all, "bank/vault") || !strings.Contains(said, "bank/vault eth0") {
		t.Errorf("the auditor sees\n%s%s", all, said)
	}
	flows, said := m.sees("seller")
	if strings.Contains(flows+said, "bank") || strings.Count(flows, "\n") != 4 ||
		strings.Count(flows, "hidden 10.42.1.4:443") != 2 || !strings.Contains(flows, "via hidden 10.96.0.9:443") ||
		!strings.Contains(said, "17") || !strings.Contains(said, "a part is not observed") {
		t.Errorf("the seller sees\n%s%s", flows, said)
	}
	if got := strings.Count(flows, "egress  shop/out; ingress  shop/in"); got != 1 { // between pods of the namespace
		t.Errorf("the seller sees policies of both ends of %d flows:\n%s", got, flows)
	}
	if flows, _ := m.sees("seller", "--to-pod", "bank/api"); flows != "" {
		t.Errorf("the seller learns what bank/api is:\n%s", flows)
	}
	if flows, said := m.sees("guest"); flows != "" || strings.Contains(said, "bank") {
		t.Errorf("the guest sees\n%s%s", flows, said)
	}

	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(m.tokens["seller"] + "\n")
	if got, _ := m.sees("guest", "--token-file", token); got != flows {
		t.Errorf("with the seller's token the guest sees\n%s", got)
	}
	write(m.tokens["seller"][:len(m.tokens["seller"])-4] + "AAAA")
	if flows, said := m.sees("guest", "--token-file", token); flows != "" || !strings.Contains(said, "the API server does not accept it") {
		t.Errorf("with a token that is not valid: %s%s", flows, said)
	}
	write("")
	if _, said := m.sees("guest", "--token-file", token); !strings.Contains(said, "the file is empty") {
		t.Errorf("with an empty token: %s", said)
	}

	// A right that is taken away ends after a minute at the latest.
	m.Do(http.MethodDelete, rbacPath+"namespaces/shop/rolebindings/flows-seller", nil)
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // the API server hears of it later
		m.now = m.now.Add(2 * time.Minute)
		flows, said := m.sees("seller")
		if flows == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("without the right the seller sees\n%s%s", flows, said)
		}
	}

	// Another program at a node's address, and a node without a listener.
	m.node("node2")
	m.node("node3")
	port := taken.Addr().(*net.TCPAddr).Port
	m.post("/apis/weft.dev/v1alpha1/flowlisteners",
		`{"apiVersion": "weft.dev/v1alpha1", "kind": "FlowListener", "metadata": {"name": "node2"}, "spec": {"address": ":%d", "key": "%s="}}`,
		port, strings.Repeat("A", 43))
	again, said := m.sees("auditor")
	if again != all || !strings.Contains(said, "node2") || !strings.Contains(said, "the key is not the one") ||
		!strings.Contains(said, "node node3: its listener: there is none") {
		t.Errorf("with other nodes the auditor sees\n%s%s", again, said)
	}

	// The annotation of an agent of an earlier version: without an object its key is accepted, next to one it is not.
	var own struct{ Spec struct{ Key string } }
	if err := json.Unmarshal(m.Do(http.MethodGet, "/apis/weft.dev/v1alpha1/flowlisteners/node1", nil), &own); err != nil {
		t.Fatal(err)
	}
	annotate := func(name, key string) {
		m.Do(http.MethodPatch, "/api/v1/nodes/"+name, fmt.Sprintf(
			`{"metadata": {"annotations": {"weft.dev/flow-listener": "{\"address\": \":%d\", \"key\": %s}"}}}`, port, strings.ReplaceAll(fmt.Sprintf("%q", key), `"`, `\"`)))
	}
	annotate("node3", own.Spec.Key) // the same program
	if older, said := m.sees("auditor", "--node", "node3"); older != all {
		t.Errorf("of an agent of an earlier version the auditor sees\n%s%s", older, said)
	}
	annotate("node2", own.Spec.Key)
	if older, said := m.sees("auditor", "--node", "node2"); older != "" || !strings.Contains(said, "the key is not the one") {
		t.Errorf("with an annotation next to an object the auditor sees\n%s%s", older, said)
	}
	m.Do(http.MethodPatch, rbacPath+"clusterroles/nodes", `{"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]}`)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // rights end late
		none, said := m.sees("auditor")
		if none == "" && strings.Contains(said, "flowlisteners") && strings.Contains(said, "listeners' keys") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("without the right to list listeners the auditor sees\n%s%s", none, said)
		}
	}
}
