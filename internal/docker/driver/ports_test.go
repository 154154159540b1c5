// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/model"
)

// TestPublished: a request to publish ports, as dockerd 20.10 sends it, is read; for a container without IPv6 it is for
// IPv4 addresses only, and for one without IPv4 for IPv6 addresses.
func TestPublished(t *testing.T) {
	const all = `{"com.docker.network.portmap":[
		{"Proto":6,"IP":"","Port":80,"HostIP":"","HostPort":8080,"HostPortEnd":8080},
		{"Proto":17,"IP":"","Port":53,"HostIP":"127.0.0.1","HostPort":5353,"HostPortEnd":5360},
		{"Proto":132,"IP":"","Port":443,"HostIP":"","HostPort":0,"HostPortEnd":0}]}`
	const six = `{"com.docker.network.portmap":[{"Proto":6,"Port":80,"HostIP":"::","HostPort":8080}]}`
	for _, c := range []struct {
		text string
		of   string // families
		want string // ports, or the begin of the error
	}{
		{all, "46", "8080:80/tcp, 127.0.0.1:5353-5360:53/udp, 443/sctp"},
		{all, "4", "0.0.0.0:8080:80/tcp, 127.0.0.1:5353-5360:53/udp, 0.0.0.0::443/sctp"},
		{all, "6", "[::]:8080:80/tcp, [::]::443/sctp; not 127.0.0.1:5353-5360:53/udp"},
		{six, "6", "[::]:8080:80/tcp"},
		{six, "46", "[::]:8080:80/tcp"},
		{six, "4", "port [::]:8080:80/tcp: the container has no IPv6 address"},
		{`{"com.docker.network.endpoint.exposedports":[{"Proto":6,"Port":80}],"com.docker.network.portmap":[]}`, "46", ""},
		{`{"com.docker.network.portmap":null}`, "46", ""},
		{`{}`, "46", ""},
		{`{"com.docker.network.portmap":"80"}`, "46", "option com.docker.network.portmap: "},
		{`{"com.docker.network.portmap":[{"Proto":6,"Port":80,"HostIP":"here"}]}`, "46", `address "here"`},
		{`{"com.docker.network.portmap":[{"Proto":1,"Port":80}]}`, "46", "port 80 of protocol 1: unknown"},
	} {
		var q cnm.EndpointRequest
		if err := json.Unmarshal([]byte(`{"Options":`+c.text+`}`), &q); err != nil {
			t.Fatal(err)
		}
		ports, err := published(q.Options)
		var without []model.PublishedPort
		if err == nil {
			ports, without, err = ofFamilies(ports, strings.Contains(c.of, "4"), strings.Contains(c.of, "6"))
		}
		got := portList(ports)
		if len(without) > 0 {
			got += "; not " + portList(without)
		}
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != c.want || err != nil && (c.want == "" || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s, IPv%s: %s, not %s", c.text, c.of, got, c.want)
		}
	}
}
