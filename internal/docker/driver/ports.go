// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/model"
)

// publish refuses to publish ports: the container would run, and nothing would answer at them. dockerd asks it of the
// endpoint that has the container's default gateway only, so that another driver's may publish them.
func (d *Driver) publish(_ context.Context, q cnm.EndpointRequest) (any, error) {
	ports, err := published(q.Options)
	if err == nil && len(ports) > 0 {
		err = model.Errorf(model.CodeInvalidConf,
			"leave -p, -P and ports: out, and connect to the container's address, which all nodes and pods reach",
			"ports %s: networks of this driver publish none", strings.Join(ports, ", "))
	}
	return struct{}{}, err
}

// published returns the ports that are to be published, as docker run -p has them.
func published(options map[string]any) (out []string, err error) {
	raw, err := json.Marshal(options[cnm.OptionPortMap])
	if err != nil {
		return nil, fmt.Errorf("option %s: %w", cnm.OptionPortMap, err)
	}
	var all []cnm.PortBinding
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("option %s: %w", cnm.OptionPortMap, err)
	}
	protocols := map[uint8]string{6: "tcp", 17: "udp", 132: "sctp"}
	for _, b := range all {
		text := fmt.Sprintf("%d/%s", b.Port, protocols[b.Proto])
		if b.HostPort != 0 {
			text = strconv.Itoa(int(b.HostPort)) + ":" + text
			if b.HostIP != "" {
				text = net.JoinHostPort(b.HostIP, text)
			}
		}
		out = append(out, text)
	}
	return out, nil
}
