// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"os"

	"github.com/weft-net/weft/internal/cluster/config"
)

// DefaultConfig is the path at which the manifests mount the configuration.
const DefaultConfig = "/etc/weft/weft.yaml"

// Local returns this node with the settings of its running agent or, without one, of the configuration file.
func Local(ctx context.Context, file, socket string) (Node, error) {
	c, source := config.Default(), "the defaults"
	_, err := os.Stat(DefaultConfig)
	if file == "" && err == nil {
		file = DefaultConfig
	}
	if file != "" {
		if c, err = config.Load(file); err != nil {
			return Node{}, err
		}
		source = file
	}
	if socket != "" {
		c.Socket, source = socket, source+" and --socket"
	}
	return FromAgent(ctx, c, source), nil
}
