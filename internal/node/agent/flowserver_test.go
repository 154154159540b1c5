// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestFlowServer: an agent with observe.listen publishes where it listens and its key, and serves flows to a user with the
// right; the next agent has another key. Without the configuration it does not listen. What an agent of an earlier version
// has published in the Node's annotation is removed.
func TestFlowServer(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 1)
	k.defined("../../../deploy/crds/weft.dev_flowlisteners.yaml")
	w := k.nodes[0]
	w.args = append(w.args, "--config", w.path("weft.yaml"))
	listener := func() (l struct{ Address, Key string }) {
		var all struct {
			Items []struct {
				Metadata struct {
					Name            string
					OwnerReferences []struct{ Kind, Name string }
				}
				Spec struct{ Address, Key string }
			}
		}
		if err := json.Unmarshal(k.Do("GET", "/apis/weft.dev/v1alpha1/flowlisteners", nil), &all); err != nil {
			t.Fatal(err)
		}
		for _, o := range all.Items { // there may be none yet
			if owners := o.Metadata.OwnerReferences; o.Metadata.Name != "n1" || len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != "n1" {
				t.Fatalf("published is %+v", o)
			}
			l = o.Spec
		}
		return l
	}
	annotated := func() bool {
		return strings.Contains(string(k.Do("GET", "/api/v1/nodes/n1", nil)), "weft.dev/flow-listener")
	}
	k.Do("PATCH", "/api/v1/nodes/n1", `{"metadata": {"annotations": {"weft.dev/flow-listener": "{\"address\": \":9443\", \"key\": \"old\"}"}}}`)
	w.configured("observe: {listen: ':9443'}\n")
	var keys []string
	for range 2 {
		w.start()
		k.until("the listener is published", func() bool {
			l := listener()
			return l.Address == ":9443" && l.Key != "" && (len(keys) == 0 || l.Key != keys[0])
		})
		keys = append(keys, listener().Key)
		var c net.Conn
		if err := k.ctl.Do(func() (err error) { c, err = net.Dial("tcp", "192.168.77.11:9443"); return err }); err != nil {
			t.Fatal(err)
		}
		secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		if _, err := fmt.Fprint(secure, "GET /observe/flows HTTP/1.0\r\nAuthorization: Bearer admin\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(secure.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo)
		if key := base64.StdEncoding.EncodeToString(sum[:]); key != keys[len(keys)-1] {
			t.Errorf("the key is %s, published is %s", key, keys[len(keys)-1])
		}
		answer := ""
		for lines := bufio.NewScanner(secure); lines.Scan(); {
			answer += lines.Text() + "\n"
		}
		if !strings.Contains(answer, "200 OK") || !strings.Contains(answer, `{"begin":{"node":"n1"`) {
			t.Errorf("the agent answers\n%s", answer)
		}
		_ = c.Close()
		w.stop()
	}
	k.until("the annotation of an agent of an earlier version is removed", func() bool { return !annotated() })
	w.configured("")
	w.start()
	k.until("the listener is not published any more", func() bool { return listener().Key == "" })
	if got := nettest.Run(t, w.node, "ss", "-Hltn"); strings.Contains(got, ":9443") {
		t.Errorf("without observe.listen it listens: %s", got)
	}
}
