// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"net/http"

	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/move"
	"github.com/weft-net/weft/internal/node/policy"
)

// admin answers root until ctx ends.
func (a *agent) admin(ctx context.Context) error {
	routes := adminapi.Routes{
		"POST " + adminapi.RouteCheck: func(r *http.Request) (any, error) {
			return a.attachments.inspector.CheckAll(r.Context()), nil
		},
		"GET " + adminapi.RouteMesh:     func(*http.Request) (any, error) { return a.overlay.Status() },
		"GET " + adminapi.RouteSettings: func(*http.Request) (any, error) { return settings(a.cfg), nil },
	}
	maps.Copy(routes, a.attachments.machines.Routes())
	if a.enforcement.policy != nil {
		maps.Copy(routes, a.enforcement.policy.Routes().Under(policy.Prefix))
	}
	if a.attachments.mover != nil {
		maps.Copy(routes, a.attachments.mover.Routes().Under(move.Prefix))
	}
	return routes.ServeOn(ctx, a.admins, a.cfg.Log)
}

// listenAdmin takes over the socket beside the one for CNI calls, which is found by the state directory, too. From then
// on who asks waits for admin.
func (a *agent) listenAdmin() (err error) {
	path := adminapi.Path(a.cfg.Socket)
	if err := adminapi.Link(path, a.cfg.StateDir); err != nil {
		return err
	}
	a.admins, err = adminapi.Listen(path, a.cfg.Log)
	return err
}
