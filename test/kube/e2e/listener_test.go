// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// listenerScript runs weft observe --tls for service accounts at the same time, each with a kubeconfig that has its token
// and nothing else of a user, and prints what each of them sees, the errors, and the exit code. $1 is weft, $2 the namespace of
// the accounts, which are the other arguments.
const listenerScript = `set -eu
weft=$1 ns=$2; shift 2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for who; do
	kubectl config view --minify --flatten --raw >"$dir/$who"
	export KUBECONFIG="$dir/$who"
	token=$(kubectl -n "$ns" create token "$who")
	kubectl config delete-user "$(kubectl config view -o 'jsonpath={.users[0].name}')" >"$dir/log"
	kubectl config set-credentials "$who" --token="$token" >"$dir/log"
	kubectl config set-context --current --user="$who" >"$dir/log"
	{ rc=0; "$weft" observe --tls -A --duration 8s -o jsonl >"$dir/$who.out" 2>"$dir/$who.err" || rc=$?; echo $rc >"$dir/$who.rc"; } &
	export KUBECONFIG=$admin
done
wait
for who; do
	echo "== $who"
	cat "$dir/$who.out"
	sed 's/^/-- /' "$dir/$who.err"
	echo "-- exit $(cat "$dir/$who.rc")"
done
`

// audience are service accounts that observe through the agents' TLS listener, in a cluster with pods of two namespaces.
type audience struct {
	Cluster
	ns, program string
	shop, bank  []Pod
}

// sight is what an account sees, and the errors.
type sight struct {
	flows []flow.Record
	text  string // all of it
}

// listener: through the TLS listeners of both nodes' agents, which have the rights for that from the chart, users see the
// flows of the namespaces in which they may get flows.weft.dev, and nothing of others; a listener whose key is not the one
// of its FlowListener is not believed.
func (c Cluster) listener(t *testing.T, ns string, pods []Pod) {
	t.Helper()
	program, err := filepath.Abs("../../../bin/image/" + runtime.GOARCH + "/weft")
	if err != nil {
		t.Fatal(err)
	}
	const bank, flows, nodes = "bank", "test-flows", "test-nodes"
	accounts := []string{"seller", "auditor", "guest"}
	defer func() { // before weft is removed
		c.kubectl(t, append([]string{"-n", ns, "delete", "serviceaccount", "--ignore-not-found"}, accounts...)...)
		c.kubectl(t, "-n", ns, "delete", "rolebinding", flows, "--ignore-not-found")
		for _, gone := range []string{
			"namespace/" + bank, "clusterrole/" + flows, "clusterrole/" + nodes, "clusterrolebinding/" + flows, "clusterrolebinding/" + nodes,
		} {
			c.kubectl(t, "delete", gone, "--ignore-not-found", "--timeout=120s")
		}
	}()
	c.kubectl(t, "create", "namespace", bank)
	a := audience{c, ns, program, pods, c.rollOut(t, bank, "vault", 2)}
	for _, account := range accounts {
		c.kubectl(t, "-n", ns, "create", "serviceaccount", account)
	}
	c.apply(t, ns, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: `+flows+`},
rules: [{apiGroups: [weft.dev], resources: [flows], verbs: [get]}]}`)
	c.kubectl(t, "create", "clusterrole", nodes, "--verb=list", "--resource=nodes,services,flowlisteners.weft.dev")
	c.kubectl(t, "create", "clusterrolebinding", nodes, "--clusterrole="+nodes, "--group=system:serviceaccounts:"+ns)
	c.kubectl(t, "create", "clusterrolebinding", flows, "--clusterrole="+flows, "--serviceaccount="+ns+":auditor")
	c.kubectl(t, "-n", ns, "create", "rolebinding", flows, "--clusterrole="+flows, "--serviceaccount="+ns+":seller")
	eventually(t, 2*time.Minute, func() error {
		seen, err := a.observe(accounts...)
		if err != nil {
			return err
		}
		return a.sees(t, seen)
	})
	a.wrongKeys(t)
}

// observe returns what accounts see while pods connect: in the shop, from the shop to the bank, and in the bank.
func (a audience) observe(accounts ...string) (map[string]sight, error) {
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		script := "admin=$KUBECONFIG\n" + listenerScript
		out, err := a.try("exec", append([]string{"control", "bash", "-c", script, "listener", a.program, a.ns}, accounts...)...)
		done <- result{out, err}
	}()
	for {
		select {
		case r := <-done:
			return sights(r.out), r.err
		default:
			_, _ = a.dial(a.shop[0], "http", a.shop[1].Status.PodIP, 8080)
			_, _ = a.dial(a.shop[0], "http", a.bank[0].Status.PodIP, 8080)
			_, _ = a.dial(a.bank[0], "http", a.bank[1].Status.PodIP, 8080)
		}
	}
}

// sights reads the output of listenerScript.
func sights(out string) map[string]sight {
	seen := map[string]sight{}
	for part := range strings.SplitSeq(out, "== ") {
		account, text, _ := strings.Cut(part, "\n")
		s := sight{text: text}
		for line := range strings.Lines(text) {
			var r flow.Record
			if json.Unmarshal([]byte(line), &r) == nil && r.Kind == flow.New {
				s.flows = append(s.flows, r)
			}
		}
		seen[account] = s
	}
	return seen
}

// has reports whether there is a connection between two pods' addresses, and on which nodes it was seen.
func (s sight) has(from, to Pod) (nodes []string) {
	for _, r := range s.flows {
		if r.From.Addr.String() == from.Status.PodIP && r.To.Addr.String() == to.Status.PodIP && !slices.Contains(nodes, r.Node) {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

// sees checks what the accounts see. The error is about what may be missing only because nothing was observed yet.
func (a audience) sees(t *testing.T, seen map[string]sight) error {
	t.Helper()
	seller, auditor, guest := seen["seller"], seen["auditor"], seen["guest"]
	if len(guest.flows) > 0 || strings.Contains(guest.text, "bank") || strings.Contains(guest.text, a.shop[0].Metadata.Name) {
		t.Errorf("without rights the guest sees: %s", guest.text)
	}
	if strings.Contains(seller.text, "bank") || strings.Contains(seller.text, "vault") || len(seller.has(a.bank[0], a.bank[1])) > 0 {
		t.Errorf("with rights in another namespace only, the seller sees the bank's: %s", seller.text)
	}
	for _, r := range seller.flows {
		if !strings.HasPrefix(r.From.Name, a.ns+"/") && !strings.HasPrefix(r.To.Name, a.ns+"/") {
			t.Errorf("the seller sees a flow without an end in namespace %s: %+v", a.ns, r)
		}
	}
	if len(seller.has(a.shop[0], a.shop[1])) != 2 || len(seller.has(a.shop[0], a.bank[0])) == 0 {
		return fmt.Errorf("the seller does not see his flows on both nodes: %s", seller.text)
	}
	if len(auditor.has(a.bank[0], a.bank[1])) != 2 || !strings.Contains(auditor.text, "bank/"+a.bank[0].Metadata.Name) {
		return fmt.Errorf("the auditor does not see the bank's flows on both nodes: %s", auditor.text)
	}
	return nil
}

// wrongKeys: no account sees a flow of nodes whose FlowListener has another key than their listener, and the error says so.
func (a audience) wrongKeys(t *testing.T) {
	t.Helper()
	for _, node := range a.nodes(t) {
		var l struct {
			Metadata struct {
				OwnerReferences []struct{ Kind, Name string }
			}
			Spec struct{ Address, Key string }
		}
		was := a.kubectl(t, "get", "flowlistener", node, "-o", "json")
		if err := json.Unmarshal([]byte(was), &l); err != nil || l.Spec.Key == "" || l.Spec.Address != ":9443" ||
			len(l.Metadata.OwnerReferences) != 1 || l.Metadata.OwnerReferences[0].Name != node {
			t.Fatalf("FlowListener %s: %v: %s", node, err, was)
		}
		a.kubectl(t, "patch", "flowlistener", node, "--type=merge", "-p", `{"spec":{"key":"`+strings.Repeat("A", 43)+`="}}`)
	}
	seen, err := a.observe("auditor")
	if err != nil {
		t.Fatal(err)
	}
	got := seen["auditor"]
	if len(got.flows) > 0 || strings.Count(got.text, "the key is not the one that the node's agent has published") < 2 {
		t.Errorf("with other keys the auditor sees: %s", got.text)
	}
}
