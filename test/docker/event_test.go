// SPDX-License-Identifier: Apache-2.0

package docker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestLabelsEvent: while the driver cannot read dockerd's API, the interface of a container stays closed, and its Node has
// an event about it in the API server, with the container's address and the reason. Then it opens.
func TestLabelsEvent(t *testing.T) {
	c := newCluster(t, 1, withKube)
	h := c.nodes[0]
	h.network("pods")
	h.driver.end(syscall.SIGKILL)
	h.apiSocket = h.path("away.sock")
	h.startDriver()
	h.run("late", "--network", "pods")
	addr := h.addr("late", "pods")
	h.until("the event is in the API server", func() error {
		var all struct {
			Items []struct {
				Type, Reason, Message string
				InvolvedObject        struct{ Kind, Name string }
			}
		}
		text := c.kube.Do(http.MethodGet, "/api/v1/events?fieldSelector=reason=ContainerLabelsUnknown", nil)
		if err := json.Unmarshal(text, &all); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.Type == "Warning" && e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == h.name &&
				strings.Contains(e.Message, addr) && strings.Contains(e.Message, "away.sock") {
				return nil
			}
		}
		return fmt.Errorf("the events are %s", text)
	})
	if out, err := h.try("exec", "late", "ping", "-c1", "-W1", "192.168.77.1"); err == nil {
		t.Errorf("before its labels are known the container reaches its node:\n%s", out)
	}
	h.driver.end(syscall.SIGKILL)
	h.apiSocket = ""
	h.startDriver()
	h.reaches("late", "192.168.77.1")
	h.docker("rm", "-f", "late")
	h.clean()
}
