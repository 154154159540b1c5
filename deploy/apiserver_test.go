// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/nettest"
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

// swap is PUT of an object as it is, but for the keys of metadata and spec that the body has; swapStatus is PUT of its
// status.
const swap, swapStatus = "swap", "swap status"

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
		for _, key := range []string{"metadata", "spec", "status"} {
			var o object
			_ = json.Unmarshal(whole[key], &o)
			(*v)[key] = o
		}
	}
	for _, part := range []string{"metadata", "spec"} {
		for key, value := range wants[part] {
			is[part][key] = value
		}
	}
	whole := object{"metadata": is["metadata"], "spec": is["spec"]}
	if wants["status"] != nil {
		whole["status"] = wants["status"]
	}
	var kind struct{ APIVersion, Kind string }
	if err := json.Unmarshal(c.Do(http.MethodGet, path, nil), &kind); err != nil {
		c.t.Fatal(err)
	}
	whole["apiVersion"], whole["kind"] = kind.APIVersion, kind.Kind
	b, err := json.Marshal(whole)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// ask makes a request with a token, and returns the code and the message. A token "admin as NAME" makes it as that user.
func (c *cluster) ask(token, method, path, body string) (int, string) {
	c.t.Helper()
	switch method {
	case swap:
		method, body = http.MethodPut, c.swapped(path, body)
	case swapStatus:
		method, path, body = http.MethodPut, path+"/status", c.swapped(path, body)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	token, user, other := strings.Cut(token, " as ")
	r.Header.Set("Authorization", "Bearer "+token)
	if other {
		r.Header.Set("Impersonate-User", user)
	}
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

// pod makes a pod on a node and returns its UID.
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
	nettest.EndToEnd(t)
	c := newCluster(t)
	for _, file := range []string{"nad-crd.yaml", "crds.yaml", "weft.yaml", "weft-multus.yaml", "weft-policy.yaml", "weft-flannel.yaml", "weft-tunnels.yaml"} {
		if out := c.must("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f",
			file); strings.Contains(strings.ToLower(out), "warning") {
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
	if out := c.must("apply", "-f", "crds.yaml", "-f", "weft.yaml"); strings.Contains(out, "configured") ||
		strings.Contains(out, "created") {
		t.Errorf("applied again: %s", out)
	}
	if out := c.must("apply", "-f", "weft-multus.yaml"); strings.Count(out, "configured") != 2 {
		t.Errorf("the other mode changes more than the ConfigMap and the DaemonSet: %s", out)
	}
	if out := c.must("apply", "-k", "multus"); strings.Contains(out, "configured") || strings.Contains(out, "created") {
		t.Errorf("applied with -k: %s", out)
	}
	c.rights()
	c.deleted()
}

// deleted: deleting weft by its manifest keeps the networks, pools and blocks of the cluster.
func (c *cluster) deleted() {
	c.t.Helper()
	c.Do(http.MethodPost, "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions",
		`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition","metadata":{"name":"theirs"},"spec":{}}`)
	c.must("delete", "-f", "weft.yaml")
	for _, object := range []string{
		"network-attachment-definition/theirs", "addresspool/p", "wpool/p", "addressblock/b2", "wblock/b2",
	} {
		c.must("get", object)
	}
	if out := c.must("get", "weft", "-o", "name"); !strings.Contains(out, "addresspool.weft.dev/p") ||
		!strings.Contains(out, "addressblock.weft.dev/b2") {
		c.t.Errorf("all of weft's objects: %s", out)
	}
	if out := c.must("get", "crd", "-l", "brought-by=somebody", "-o", "name"); !strings.Contains(out,
		"network-attachment-definitions") {
		c.t.Errorf("the CRD that was there: %q", out)
	}
}
