// SPDX-License-Identifier: Apache-2.0

// Package kube opens the API server for a command: it finds the kubeconfig where kubectl would, or the service account
// in a pod. Of the command line's packages it alone knows cluster/store/kube, and through it client-go.
package kube

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
)

// Open opens the API server that a kubeconfig names, that of $KUBECONFIG without one, in a pod the server of the pod's
// service account, and else that of ~/.kube/config. False: none of them is there.
func Open(env ui.Env, kubeconfig string) (objects store.Objects, found bool, err error) {
	access := kube.Access{Kubeconfig: kubeconfig, Getenv: env.Getenv}
	if access.Kubeconfig == "" {
		access.Kubeconfig = env.Getenv("KUBECONFIG")
	}
	access.InCluster = access.Kubeconfig == "" && env.Getenv("KUBERNETES_SERVICE_HOST") != ""
	if access.Kubeconfig == "" && !access.InCluster {
		access.Kubeconfig = homeKubeconfig(env.Getenv("HOME"))
	}
	if access.Kubeconfig == "" && !access.InCluster {
		return nil, false, nil
	}
	objects, err = open(env, access)
	return objects, true, err
}

// OpenConfigured opens the API server of an agent's configuration.
func OpenConfigured(env ui.Env, k config.Kubernetes) (store.Objects, error) {
	return open(env, kube.Access{InCluster: k.InCluster, Kubeconfig: k.Kubeconfig, Server: k.Server, Getenv: env.Getenv})
}

// homeKubeconfig is kubectl's own file in a home directory, empty where there is none.
func homeKubeconfig(home string) string {
	if home == "" {
		return ""
	}
	path := filepath.Join(home, ".kube", "config")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

func open(env ui.Env, access kube.Access) (store.Objects, error) {
	s, err := kube.Open(kube.Config{
		Access: access, Node: "command-line", Agent: "weft/" + env.Version,
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
	if err != nil {
		return nil, err
	}
	return s.Objects(), nil
}
