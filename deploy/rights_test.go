// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/apitest"
)

// try is one request of an agent and how it ends.
type try struct {
	name, method, path, body string
	code                     int
	says                     string
}

const (
	statusOf      = "/api/v1/namespaces/default/pods/%s/status"
	nodeStatus    = "/api/v1/nodes/"
	flannels      = `{"metadata":{"annotations":{"flannel.alpha.coreos.com/public-ip":"10.0.0.1"}}}`
	blocksURL     = "/apis/weft.dev/v1alpha1/addressblocks"
	poolsURL      = "/apis/weft.dev/v1alpha1/addresspools"
	endpointsURL  = "/apis/weft.dev/v1alpha1/nodeendpoints"
	listenersURL  = "/apis/weft.dev/v1alpha1/flowlisteners"
	ipamClaimsURL = "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/default/ipamclaims"
	claimsURL     = "/apis/weft.dev/v1alpha1/namespaces/default/addressclaims"
	movesURL      = "/apis/weft.dev/v1alpha1/namespaces/default/addressmoves"
	requestsURL   = "/apis/weft.dev/v1alpha1/addresspoolrequests"
	leasesURL     = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	network       = `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":"[]"}}}`
)

func pool(name, annotations string) string {
	return fmt.Sprintf(
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":%q,"annotations":%s},"spec":{}}`,
		name, annotations,
	)
}

func request(name, node string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPoolRequest","metadata":{"name":%q},
		"spec":{"node":%q,"pool":"whereabouts","cidr":"10.9.0.0/24","addresses":254}}`, name, node)
}

// status is the body of a status with these fields.
func status(fields string) string { return `{"status":` + fields + `}` }

func endpoints(node string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"NodeEndpoints","metadata":{"name":%q},
		"spec":{"endpoints":[{"namespace":"a","pod":"p","interface":"eth0","addresses":["10.0.0.1"]}]}}`, node)
}

func listener(node string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"FlowListener","metadata":{"name":%q,
		"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":%[1]q,"uid":"8d4b2d1e-0000-4000-8000-000000000000"}]},
		"spec":{"address":":9443","key":"%s="}}`, node, strings.Repeat("A", 43))
}

func claim(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressClaim","metadata":{"name":%q},"spec":%s}`, name,
		spec)
}

func move(name, target string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressMove","metadata":{"name":%q},
		"spec":{"machine":"db","addresses":["10.0.0.1"],"target":%q}}`, name, target)
}

func lease(name string) string {
	return fmt.Sprintf(
		`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":{"holderIdentity":"n1"}}`, name,
	)
}

func block(name, node, claim, more string) string {
	return fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":%q},
		"spec":{"pool":"p","cidr":"10.0.%s.0/24","node":%q,"claim":%q%s}}`, name, strings.TrimPrefix(strings.Replace(name, "orphan", "b9", 1), "b"), node, claim, more)
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
	c.Do(http.MethodPost, blocksURL,
		block("b2", "n2", "1", `,"asked":{"10.0.2.9":"n3"},"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1"},
		"granted":{"10.0.2.7":"n1 for AddressClaim a/b","10.0.2.8":"n3 for AddressClaim a/b"}`))
	c.Do(http.MethodPost, blocksURL, block("orphan", "n9", "1", `,"orphaned":true`))
	c.Do(http.MethodPost, claimsURL, claim("theirs", "{}"))
	c.DefineKind([]byte(apitest.IPAMClaimKind))
	c.Do(http.MethodPost, ipamClaimsURL, `{"apiVersion":"k8s.cni.cncf.io/v1alpha1","kind":"IPAMClaim",
		"metadata":{"name":"vm"},"spec":{"network":"lan","interface":"net1"}}`)
	c.Do(http.MethodPost, poolsURL, pool("p", "{}"))
	c.Do(http.MethodPost, listenersURL, listener("n2"))
	c.Do(http.MethodPost, leasesURL, lease("weft-controller"))
	for path, body := range map[string]string{
		ipamClaimsURL + "/vm": `{"ips":["10.0.7.1/24"]}`,
		claimsURL + "/theirs": `{"addresses":["10.0.2.1"],"node":"n2"}`, poolsURL + "/p": `{"wanted":["n2"]}`,
	} {
		if code, says := c.ask("admin", swapStatus, path, status(body)); code != 200 {
			t.Fatalf("%s: %d %s", path, code, says)
		}
	}
	token := c.Token("kube-system", "weft", "Pod", "weft-1", uid)
	c.inForce(token)
	for _, x := range tries() {
		c.try(token, x)
	}
	c.controllerRights()
	loose := c.looseToken()
	if code, says := c.ask(loose, "PATCH", fmt.Sprintf(statusOf, "p1"), network); code != 422 ||
		!strings.Contains(says, "the token is of no node") {
		t.Errorf("a token of no node: %d %s", code, says)
	}
	c.wide(token)
	for _, x := range []try{
		{"a block", "POST", blocksURL, block("b7", "", "1", ""), 422, ""},
		{"a claim", "POST", claimsURL, claim("loose", `{"virtualMachine":{"name":"db"}}`), 422, "bound to no node"},
		{"a block asked for an address", swap, blocksURL + "/b2", `{"spec":{"asked":{}}}`, 422, "bound to no node"},
		{"a pool's status", swapStatus, poolsURL + "/p", status(`{"wanted":["n2"]}`), 422, "bound to no node"},
		{"a request", "POST", requestsURL, request("loose", "n1"), 422, "requests for its own node only"},
		{"a listener", "POST", listenersURL, listener("n1"), 422, "the token is of no node"},
	} {
		x.name = "a token of no node: " + x.name
		c.try(loose, x)
	}
	if code, says := c.ask("admin", "PATCH", fmt.Sprintf(statusOf, "p2"), network); code != 200 {
		t.Errorf("the administrator: %d %s", code, says)
	}
}

// wide: pools and claims are safe from agents also if they have more rights than in the manifests.
func (c *cluster) wide(token string) {
	c.Do(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"wide"},
		"rules":[{"apiGroups":["weft.dev"],"resources":["*"],"verbs":["*"]}]}`)
	c.Do(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"wide"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"wide"},"subjects":[{"kind":"ServiceAccount","name":"weft","namespace":"kube-system"}]}`)
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if code, says := c.ask(token, "DELETE", poolsURL+"/none", ""); code == http.StatusNotFound {
			break
		} else if time.Now().After(until) {
			c.t.Fatalf("the wide role is not in force: %d %s", code, says)
		}
	}
	for _, x := range []try{
		{"a pool", "POST", poolsURL, pool("other", "{}"), 422, "create an AddressPoolRequest instead"},
		{"a pool changed", swap, poolsURL + "/p", `{"spec":{"disabled":true}}`, 422, "create an AddressPoolRequest instead"},
		{"a pool deleted", "DELETE", poolsURL + "/p", "", 422, "create an AddressPoolRequest instead"},
		{"a claim changed", "PATCH", claimsURL + "/theirs", `{"metadata":{"labels":{"a":"b"}}}`, 422, "only to its own node"},
		{"a claim deleted", "DELETE", claimsURL + "/theirs", "", 422, "an agent may not delete claims"},
	} {
		x.name = "with wide rights: " + x.name
		c.try(token, x)
	}
}

// controllerRights: the controller may write pools, mark blocks and take claims away, and nothing of nodes and pods.
func (c *cluster) controllerRights() {
	uid := c.pod("kube-system", "weft-controller-1", "n2", "weft-controller")
	token := c.Token("kube-system", "weft-controller", "Pod", "weft-controller-1", uid)
	patch := func(spec string) string { return `{"spec":` + spec + `}` }
	for _, x := range []try{
		{"a pool", "POST", poolsURL, pool("made", "{}"), 201, ""},
		{"a pool changed", swap, poolsURL + "/made", patch(`{"disabled":true}`), 200, ""},
		{"a pool's status", swapStatus, poolsURL + "/made", status(`{"conditions":[]}`), 200, ""},
		{"a pool deleted", "DELETE", poolsURL + "/made", "", 200, ""},
		{"requests read", "GET", requestsURL, "", 200, ""},
		{"a request deleted", "DELETE", requestsURL + "/r1", "", 200, ""},
		{"a request made", "POST", requestsURL, request("r3", "n2"), 403, "cannot create"},
		{"blocks read", "GET", blocksURL, "", 200, ""},
		{"a block marked", swap, blocksURL + "/b2", patch(`{"orphaned":true}`), 200, ""},
		{"an address granted", swap, blocksURL + "/b2", patch(`{"granted":{"10.0.2.9":"n1 for AddressClaim a/b"}}`), 200, ""},
		{"a block claimed", "POST", blocksURL, block("b5", "n2", "1", ""), 403, "cannot create"},
		{"a block deleted", "DELETE", blocksURL + "/b2", "", 403, "cannot delete"},
		{"a claim's status", swapStatus, claimsURL + "/machine", status(`{"addresses":[]}`), 200, ""},
		{"a claim deleted", "DELETE", claimsURL + "/machine", "", 200, ""},
		{"a claim made", "POST", claimsURL, claim("mine", `{}`), 403, "cannot create"},
		{"nodes read", "GET", "/api/v1/nodes", "", 200, ""},
		{"a node's status", "PATCH", nodeStatus + "n2/status", flannels, 403, "cannot patch"},
		{"a pod's status", "PATCH", fmt.Sprintf(statusOf, "p2"), network, 403, "cannot patch"},
		{"secrets", "GET", "/api/v1/secrets", "", 403, "cannot list"},
		{"endpoints", "POST", endpointsURL, endpoints("n2"), 403, "cannot create"},
		{"a listener's key", swap, listenersURL + "/n2", patch(`{"address":":1"}`), 403, "cannot update"},
		{"moves", "POST", movesURL, move("m2", "n2"), 403, "cannot create"},
		{"Calico's pools read", "GET", "/apis/crd.projectcalico.org/v1/ippools", "", 404, ""},
		{"the Lease read", "GET", leasesURL + "/weft-controller", "", 200, ""},
		{"the Lease renewed", swap, leasesURL + "/weft-controller", patch(`{"holderIdentity":"c"}`), 200, ""},
		{"another Lease read", "GET", leasesURL + "/kube-scheduler", "", 403, "cannot get"},
		{"a block's conditions", swapStatus, blocksURL + "/b2", status(`{"conditions":[]}`), 200, ""},
		{
			"an event", "POST", "/api/v1/namespaces/default/events",
			`{"apiVersion":"v1","kind":"Event","metadata":{"name":"of-pool","namespace":"default"},
			"involvedObject":{"kind":"AddressPool","name":"p"},"reason":"R","message":"m","type":"Normal"}`, 201, "",
		},
		{"an event repeated", "PATCH", "/api/v1/namespaces/default/events/of-pool", `{"count":2}`, 200, ""},
		{"events read", "GET", "/api/v1/events", "", 403, "cannot list"},
		{"an event deleted", "DELETE", "/api/v1/namespaces/default/events/of-pool", "", 403, "cannot delete"},
		{
			"another account's token", "POST", "/api/v1/namespaces/kube-system/serviceaccounts/weft/token", "{}", 403,
			"cannot create",
		},
	} {
		x.name = "the controller: " + x.name
		c.try(token, x)
	}
}

// try makes a request and compares how it ends.
func (c *cluster) try(token string, x try) {
	c.t.Helper()
	code, says := c.ask(token, x.method, x.path, x.body)
	for range 50 {
		if code != http.StatusTooManyRequests { // the storage of a new kind
			break
		}
		time.Sleep(100 * time.Millisecond)
		code, says = c.ask(token, x.method, x.path, x.body)
	}
	if code != x.code || !strings.Contains(says, x.says) {
		c.t.Errorf("%s: %d %s, want %d %q", x.name, code, says, x.code, x.says)
	}
}

// inForce waits until the server goes by every policy: each has an answer of its own to a request that does nothing.
func (c *cluster) inForce(token string) {
	c.t.Helper()
	dryRun := "?dryRun=All"
	for _, x := range []try{
		{"pods", "PATCH", fmt.Sprintf(statusOf, "p2") + dryRun, network, 422, "this one is on n2"},
		{"nodes", "PATCH", nodeStatus + "n2/status" + dryRun, flannels, 422, "this one is n2"},
		{"blocks", "POST", blocksURL + dryRun, block("b3", "n2", "1", ""), 422, "for its own node only"},
		{
			"pools", swapStatus, poolsURL + "/p",
			status(
				`{"wanted":["n2"],"conditions":[{"type":"Probe","status":"False","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`,
			), 422, "the conditions of a pool",
		},
		{"claims", "POST", claimsURL + dryRun, claim("mine", `{}`), 422, "and no others"},
		{"requests", "POST", requestsURL + dryRun, request("r2", "n2"), 422, "requests for its own node only"},
		{"endpoints", "POST", endpointsURL + dryRun, endpoints("n2"), 422, "this is n2"},
		{"listeners", "DELETE", listenersURL + "/n2" + dryRun, "", 422, "this is n2"},
		{"moves", "POST", movesURL + dryRun, move("m2", "n2"), 422, "the token is of n1"},
	} {
		for until := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
			code, says := c.ask(token, x.method, x.path, x.body)
			if code == x.code && strings.Contains(says, x.says) {
				break
			}
			if time.Now().After(until) {
				c.t.Fatalf("the policy of %s is not in force: %d %s", x.name, code, says)
			}
		}
	}
	if code, says := c.ask("admin", swapStatus, poolsURL+"/p", status(`{"wanted":["n2"]}`)); code != 200 {
		// as it was before the policy
		c.t.Fatalf("pool: %d %s", code, says)
	}
}

// looseToken is a token of the account that is not bound to a node, as a user with the right to create tokens gets it.
func (c *cluster) looseToken() string {
	c.t.Helper()
	return string(bytes.TrimSpace([]byte(c.must("-n", "kube-system", "create", "token", "weft"))))
}
