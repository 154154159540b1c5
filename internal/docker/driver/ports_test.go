// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/docker/cnm"
)

// TestPublished: a request to publish ports, as dockerd 20.10 sends it, is refused with all of them; one without is not.
func TestPublished(t *testing.T) {
	for text, want := range map[string]string{
		`{"com.docker.network.portmap":[
			{"Proto":6,"IP":"","Port":80,"HostIP":"","HostPort":8080,"HostPortEnd":8080},
			{"Proto":17,"IP":"","Port":53,"HostIP":"127.0.0.1","HostPort":5353,"HostPortEnd":5353},
			{"Proto":6,"IP":"","Port":443,"HostIP":"","HostPort":0,"HostPortEnd":0}]}`: "ports 8080:80/tcp, 127.0.0.1:5353:53/udp, 443/tcp: ",
		`{"com.docker.network.portmap":[{"Proto":6,"Port":80,"HostIP":"::1","HostPort":8080}]}`:                "ports [::1]:8080:80/tcp: ",
		`{"com.docker.network.endpoint.exposedports":[{"Proto":6,"Port":80}],"com.docker.network.portmap":[]}`: "",
		`{"com.docker.network.portmap":null}`: "",
		`{}`:                                  "",
		`{"com.docker.network.portmap":"80"}`: "option com.docker.network.portmap: ",
	} {
		var q cnm.EndpointRequest
		if err := json.Unmarshal([]byte(`{"Options":`+text+`}`), &q); err != nil {
			t.Fatal(err)
		}
		_, err := new(Driver).publish(t.Context(), q)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v, not %q", text, err, want)
		}
	}
}
