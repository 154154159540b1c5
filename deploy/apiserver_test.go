// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
)

// cluster is an API server that kubectl is used with as a user does.
type cluster struct {
	*apitest.Server
	t       *testing.T
	kubectl string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	program := kubectl(t)
	return &cluster{apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1")), t, program}
}

// run runs kubectl; out is all that it says.
func (c *cluster) run(args ...string) (out string, err error) {
	args = append([]string{"--server", c.URL, "--certificate-authority", c.CAFile, "--token", "admin"}, args...)
	b, err := exec.CommandContext(c.t.Context(), c.kubectl, args...).CombinedOutput()
	return string(b), err
}

func (c *cluster) must(args ...string) string {
	c.t.Helper()
	out, err := c.run(args...)
	if err != nil {
		c.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// swap is PUT of an object as it is, but for the keys of spec that the body has.
const swap = "swap"

// swapped is the body of that.
func (c *cluster) swapped(path, body string) string {
	c.t.Helper()
	var is, wants map[string]object
	for text, v := range map[string]*map[string]object{string(c.Do(http.MethodGet, path, nil)): &is, body: &wants} {
		var whole map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &whole); err != nil {
			c.t.Fatal(err)
		}
		*v = map[string]object{}
		for _, key := range []string{"metadata", "spec"} {
			var o object
			_ = json.Unmarshal(whole[key], &o)
			(*v)[key] = o
		}
	}
	for key, value := range wants["spec"] {
		is["spec"][key] = value
	}
	kind := "AddressBlock"
	if strings.Contains(path, "/addressmoves/") {
		kind = "AddressMove"
	}
	b, err := json.Marshal(object{"apiVersion": "weft.dev/v1alpha1", "kind": kind, "metadata": is["metadata"], "spec": is["spec"]})
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// ask makes a request with a token, and gives the code and the message.
func (c *cluster) ask(token, method, path, body string) (int, string) {
	c.t.Helper()
	if method == swap {
		method, body = http.MethodPut, c.swapped(path, body)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := c.HTTP().Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var status struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(b, &status)
	return answer.StatusCode, status.Message
}

// pod makes a pod on a node and gives its uid.
func (c *cluster) pod(namespace, name, node, account string) string {
	c.t.Helper()
	var pod struct{ Metadata struct{ UID string } }
	raw := c.Do(http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"annotations":{"theirs":"1"},"labels":{"app":"x"}},
		"spec":{"nodeName":%q,"serviceAccountName":%q,"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`, name, node, account))
	if err := json.Unmarshal(raw, &pod); err != nil {
		c.t.Fatal(err)
	}
	return pod.Metadata.UID
}

// TestApply: the server takes the manifests without a word of doubt, again without a change, and a CRD of networks that
// is there stays as it is.
func TestApply(t *testing.T) {
	c := newCluster(t)
	for _, file := range []string{"nad-crd.yaml", "crds.yaml", "weft.yaml", "weft-multus.yaml", "weft-flannel.yaml"} {
		if out := c.must("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", file); strings.Contains(strings.ToLower(out), "warning") {
			t.Errorf("%s: %s", file, out)
		}
	}
	c.must("create", "-f", "nad-crd.yaml")
	c.must("label", "-f", "nad-crd.yaml", "brought-by=somebody")
	if out, err := c.run("create", "-f", "nad-crd.yaml"); err == nil || !strings.Contains(out, "AlreadyExists") {
		t.Errorf("a second CRD: %s", out)
	}
	c.must("apply", "-f", "crds.yaml")
	c.must("apply", "-f", "weft.yaml")
	c.must("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	if out := c.must("apply", "-f", "crds.yaml", "-f", "weft.yaml"); strings.Contains(out, "configured") || strings.Contains(out, "created") {
		t.Errorf("applied again: %s", out)
	}
	if out := c.must("apply", "-f", "weft-multus.yaml"); strings.Count(out, "configured") != 1 {
		t.Errorf("the other mode changes more than the ConfigMap: %s", out)
	}
	if out := c.must("apply", "-k", "multus"); strings.Contains(out, "configured") || strings.Contains(out, "created") {
		t.Errorf("applied with -k: %s", out)
	}
	c.rights()
	c.deleted()
}

// deleted: whoever deletes weft by the file that it came with keeps the networks, pools and blocks of the cluster.
func (c *cluster) deleted() {
	c.t.Helper()
	c.Do(http.MethodPost, "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions",
		`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition","metadata":{"name":"theirs"},"spec":{}}`)
	c.must("delete", "-f", "weft.yaml")
	for _, object := range []string{"network-attachment-definition/theirs", "addresspool/p", "addressblock/b2"} {
		c.must("get", object)
	}
	if out := c.must("get", "crd", "-l", "brought-by=somebody", "-o", "name"); !strings.Contains(out, "network-attachment-definitions") {
		c.t.Errorf("the CRD that was there: %q", out)
	}
}

// try is one request of an agent and how it ends.
type try struct {
	name, method, path, body string
	code                     int
	says                     string
}

const (
	statusOf     = "/api/v1/namespaces/default/pods/%s/status"
	nodeStatus   = "/api/v1/nodes/"
	flannels     = `{"metadata":{"annotations":{"flannel.alpha.coreos.com/public-ip":"10.0.0.1"}}}`
	blocksURL    = "/apis/weft.dev/v1alpha1/addressblocks"
	poolsURL     = "/apis/weft.dev/v1alpha1/addresspools"
	endpointsURL = "/apis/weft.dev/v1alpha1/nodeendpoints"
	claimsURL    = "/apis/weft.dev/v1alpha1/namespaces/default/addressclaims"
	movesURL     = "/apis/weft.dev/v1alpha1/namespaces/default/addressmoves"
	leasesURL    = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	network      = `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":"[]"}}}`
)

func pool(name, annotations string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":%q,"annotations":%s},"spec":{}}`, name, annotations)
}

func endpoints(node string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"NodeEndpoints","metadata":{"name":%q},
		"spec":{"endpoints":[{"namespace":"a","pod":"p","interface":"eth0","addresses":["10.0.0.1"]}]}}`, node)
}

func claim(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressClaim","metadata":{"name":%q},"spec":%s}`, name, spec)
}

func move(name, target string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressMove","metadata":{"name":%q},
		"spec":{"machine":"db","addresses":["10.0.0.1"],"target":%q}}`, name, target)
}

func lease(name string) string {
	return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":{"holderIdentity":"n1"}}`, name)
}

func block(name, node, claim, more string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":%q},
		"spec":{"pool":"p","cidr":"10.0.%s.0/24","node":%q,"claim":%q%s}}`, name, strings.TrimPrefix(name, "b"), node, claim, more)
}

func tries() []try {
	patch := func(spec string) string { return `{"spec":` + spec + `}` }
	return []try{
		{"another node's pod", "PATCH", fmt.Sprintf(statusOf, "p2"), network, 422, "this one is on n2, the token is of n1"},
		{"its own node's pod", "PATCH", fmt.Sprintf(statusOf, "p1"), network, 200, ""},
		{"taken back", "PATCH", fmt.Sprintf(statusOf, "p1"), `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":null}}}`, 200, ""},
		{"another annotation", "PATCH", fmt.Sprintf(statusOf, "p1"), `{"metadata":{"annotations":{"theirs":"2"}}}`, 422, "and no other"},
		{"an annotation removed", "PATCH", fmt.Sprintf(statusOf, "p1"), `{"metadata":{"annotations":{"theirs":null}}}`, 422, "and no other"},
		{"the status", "PATCH", fmt.Sprintf(statusOf, "p1"), `{"status":{"phase":"Failed"}}`, 422, "not its status"},
		{"a label", "PATCH", fmt.Sprintf(statusOf, "p1"), `{"metadata":{"labels":{"app":"y"}}}`, 422, "no labels"},
		{"the pod itself", "PATCH", "/api/v1/namespaces/default/pods/p1", `{"metadata":{"labels":{"app":"y"}}}`, 403, "cannot patch"},
		{"a pod deleted", "DELETE", "/api/v1/namespaces/default/pods/p1", "", 403, "cannot delete"},
		{"secrets", "GET", "/api/v1/secrets", "", 403, "cannot list"},
		{"a node", "PATCH", "/api/v1/nodes/n1", `{}`, 403, "cannot patch"},
		{"its own node's annotation", "PATCH", nodeStatus + "n1/status", flannels, 200, ""},
		{"another node's annotation", "PATCH", nodeStatus + "n2/status", flannels, 422, "this one is n2, the token is of n1"},
		{"another annotation of the node", "PATCH", nodeStatus + "n1/status", `{"metadata":{"annotations":{"theirs":"1"}}}`, 422, "and no other"},
		{"its own pods' addresses", "PATCH", nodeStatus + "n1/status", `{"metadata":{"annotations":{"weft.dev/pod-addresses":"[]"}}}`, 200, ""},
		{"none any more", "PATCH", nodeStatus + "n1/status", `{"metadata":{"annotations":{"weft.dev/pod-addresses":null}}}`, 200, ""},
		{"those of another node's pods", "PATCH", nodeStatus + "n2/status", `{"metadata":{"annotations":{"weft.dev/pod-addresses":"[]"}}}`, 422, "this one is n2, the token is of n1"},
		{"a label of the node", "PATCH", nodeStatus + "n1/status", `{"metadata":{"labels":{"app":"y"}}}`, 422, "no labels"},
		{"the network is available", "PATCH", nodeStatus + "n1/status", `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False"}]}}`, 200, ""},
		{"the node is ready", "PATCH", nodeStatus + "n1/status", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, 422, "NetworkUnavailable of its node and no other"},
		{"an address of the node", "PATCH", nodeStatus + "n1/status", `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`, 422, "not the rest"},
		{"nodes read", "GET", "/api/v1/nodes", "", 200, ""},
		{"pods read", "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", "", 200, ""},
		{"networks read", "GET", "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions", "", 200, ""},
		{"a network made", "POST", "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions", `{}`, 403, "cannot create"},
		{"an event", "POST", "/api/v1/namespaces/default/events", `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"default"},
			"involvedObject":{"kind":"Pod","namespace":"default","name":"p1"},"reason":"R","message":"m","type":"Normal"}`, 201, ""},
		{"a block of its own", "POST", blocksURL, block("b1", "n1", "1", ""), 201, ""},
		{"a block for another", "POST", blocksURL, block("b3", "n2", "1", ""), 422, "for its own node only"},
		{"asks for an address", swap, blocksURL + "/b2", patch(`{"asked":{"10.0.2.1":"n1"}}`), 200, ""},
		{"another's claim", swap, blocksURL + "/b2", patch(`{"claim":"2"}`), 422, "who has another node's block"},
		{"given to a third", swap, blocksURL + "/b2", patch(`{"node":"n3"}`), 422, "who has another node's block"},
		{"a machine's address ceded to itself", swap, blocksURL + "/b2", patch(`{"ceded":{"10.0.2.7":"n1/1"}}`), 200, ""},
		{"a machine's claim", "POST", claimsURL, claim("machine", `{"virtualMachine":{"name":"db","network":"weft","interface":"eth0"}}`), 201, ""},
		{"people's claim", "POST", claimsURL, claim("mine", `{}`), 422, "of virtual machines, and no others"},
		{"a machine's claim deleted", "DELETE", claimsURL + "/machine", "", 200, ""},
		{"people's claim deleted", "DELETE", claimsURL + "/theirs", "", 422, "of virtual machines, and no others"},
		{"machines read", "GET", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/db", "", 404, ""},
		{"a machine made", "POST", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines", "{}", 403, "cannot create"},
		{"a machine awaited", "POST", movesURL, move("m1", "n1"), 201, ""},
		{"a machine awaited elsewhere", "POST", movesURL, move("m2", "n2"), 422, "the token is of n1"},
		{"connections of its own", swap, movesURL + "/m1", patch(`{"source":"n1","connections":"AAEC"}`), 200, ""},
		{"connections of another", swap, movesURL + "/m1", patch(`{"source":"n3"}`), 422, "the token is of n1"},
		{"another target", swap, movesURL + "/m1", patch(`{"source":"n1","target":"n2"}`), 422, "cannot be changed"},
		{"a move that is over", "DELETE", movesURL + "/m1", "", 200, ""},
		{"another's deleted", "DELETE", blocksURL + "/b2", "", 422, "deletes blocks of its own node only"},
		{"taken over", swap, blocksURL + "/b2", patch(`{"node":"n1","claim":"3"}`), 200, ""},
		{"its own deleted", "DELETE", blocksURL + "/b1", "", 200, ""},
		{"a block patched", "PATCH", blocksURL + "/b2", patch(`{"claim":"4"}`), 403, "cannot patch"},
		{"a pool", "POST", poolsURL, pool("p", "{}"), 201, ""},
		{"a pool deleted", "DELETE", poolsURL + "/p", "", 422, "that follow Calico's, and no others"},
		{"a pool that follows Calico's", "POST", poolsURL, pool("followed", `{"weft.dev/from":"crd.projectcalico.org/IPPool"}`), 201, ""},
		{"that one deleted", "DELETE", poolsURL + "/followed", "", 200, ""},
		{"Calico's pools read", "GET", "/apis/crd.projectcalico.org/v1/ippools", "", 404, ""},
		{"Calico's pools written", "POST", "/apis/crd.projectcalico.org/v1/ippools", "{}", 403, "cannot create"},
		{"its own endpoints", "POST", endpointsURL, endpoints("n1"), 201, ""},
		{"another node's endpoints", "POST", endpointsURL, endpoints("n2"), 422, "this is n2, the token is of n1"},
		{"endpoints deleted", "DELETE", endpointsURL + "/n1", "", 403, "cannot delete"},
		{"network policies read", "GET", "/apis/networking.k8s.io/v1/networkpolicies", "", 200, ""},
		{"a network policy made", "POST", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", "{}", 403, "cannot create"},
		{"reservations read", "GET", "/apis/weft.dev/v1alpha1/addressreservations", "", 200, ""},
		{"a reservation made", "POST", "/apis/weft.dev/v1alpha1/addressreservations", "{}", 403, "cannot create"},
		{"the Lease", "POST", leasesURL, lease("weft-controller"), 201, ""},
		{"the Lease read", "GET", leasesURL + "/weft-controller", "", 200, ""},
		{"another Lease read", "GET", leasesURL + "/kube-scheduler", "", 403, "cannot get"},
	}
}

// rights: an agent may do what it must, for its own node, and nothing else.
func (c *cluster) rights() {
	t := c.t
	for _, n := range []string{"n1", "n2"} {
		c.Do(http.MethodPost, "/api/v1/nodes", fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, n))
	}
	uid := c.pod("kube-system", "weft-1", "n1", "weft")
	c.pod("default", "p1", "n1", "default")
	c.pod("default", "p2", "n2", "default")
	c.Do(http.MethodPost, blocksURL, block("b2", "n2", "1", ""))
	c.Do(http.MethodPost, claimsURL, claim("theirs", "{}"))
	token := c.Token("kube-system", "weft", "Pod", "weft-1", uid)
	// A new policy is in force a moment later.
	until := time.Now().Add(30 * time.Second)
	for {
		pod, _ := c.ask(token, "PATCH", fmt.Sprintf(statusOf, "p2"), network)
		other, _ := c.ask(token, swap, blocksURL+"/b2", `{"spec":{"claim":"1"}}`)
		probe, _ := c.ask(token, "DELETE", blocksURL+"/none", "")
		node, _ := c.ask(token, "PATCH", nodeStatus+"n2/status", flannels)
		c.ask("admin", "POST", poolsURL, pool("probe", "{}")) // gone where the policy is not in force
		pools, _ := c.ask(token, "DELETE", poolsURL+"/probe", "")
		claims, _ := c.ask(token, "POST", claimsURL, claim("probe", "{}"))
		c.ask("admin", "DELETE", claimsURL+"/probe", "")
		if pod == 422 && other == 200 && probe == 404 && node == 422 && pools == 422 && claims == 422 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the policies are not in force: %d %d %d %d %d %d", pod, other, probe, node, pools, claims)
		}
		time.Sleep(200 * time.Millisecond)
	}
	time.Sleep(time.Second) // the other policy
	for _, x := range tries() {
		code, says := c.ask(token, x.method, x.path, x.body)
		for range 50 {
			if code != http.StatusTooManyRequests { // the storage of a new kind
				break
			}
			time.Sleep(100 * time.Millisecond)
			code, says = c.ask(token, x.method, x.path, x.body)
		}
		if code != x.code || !strings.Contains(says, x.says) {
			t.Errorf("%s: %d %s, want %d %q", x.name, code, says, x.code, x.says)
		}
	}
	loose := c.looseToken()
	if code, says := c.ask(loose, "PATCH", fmt.Sprintf(statusOf, "p1"), network); code != 422 || !strings.Contains(says, "the token is of no node") {
		t.Errorf("a token of no node: %d %s", code, says)
	}
	if code, says := c.ask("admin", "PATCH", fmt.Sprintf(statusOf, "p2"), network); code != 200 {
		t.Errorf("somebody else: %d %s", code, says)
	}
}

// looseToken is one of the account that is bound to nothing, as somebody with the right to make tokens gets it.
func (c *cluster) looseToken() string {
	c.t.Helper()
	return string(bytes.TrimSpace([]byte(c.must("-n", "kube-system", "create", "token", "weft"))))
}
