// SPDX-License-Identifier: Apache-2.0

// Package kube connects a command to the API server, by the kubeconfig that kubectl would use or, in a pod, the service
// account. It is the only package of the command line that imports cluster/store/kube, and with it client-go.
package kube

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
)

// Open connects to the API server of the kubeconfig, else of $KUBECONFIG, else in a pod of the service account, else of
// ~/.kube/config. found is false if none of them exists. A context is one of the kubeconfig; empty for its current one.
func Open(env ui.Env, kubeconfig, context string) (objects store.Objects, found bool, err error) {
	access, found := AccessOf(env, kubeconfig, context)
	if !found {
		return nil, false, nil
	}
	objects, err = open(env, access)
	return objects, true, err
}

// AccessOf returns how Open finds the API server. With a context it is that of a kubeconfig.
func AccessOf(env ui.Env, kubeconfig, context string) (access kube.Access, found bool) {
	access = kube.Access{Kubeconfig: kubeconfig, Context: context, Getenv: env.Getenv}
	if access.Kubeconfig == "" {
		access.Kubeconfig = env.Getenv("KUBECONFIG")
	}
	access.InCluster = access.Kubeconfig == "" && context == "" && env.Getenv("KUBERNETES_SERVICE_HOST") != ""
	if access.Kubeconfig == "" && !access.InCluster {
		access.Kubeconfig = homeKubeconfig(env.Getenv("HOME"))
	}
	return access, access.Kubeconfig != "" || access.InCluster
}

// OpenConfigured connects to the API server of an agent's configuration.
func OpenConfigured(env ui.Env, k config.Kubernetes) (store.Objects, error) {
	return open(env, kube.Access{InCluster: k.InCluster, Kubeconfig: k.Kubeconfig, Server: k.Server, Getenv: env.Getenv})
}

// homeKubeconfig returns the path of kubectl's default file in a home directory, empty if it does not exist.
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
	s, err := OpenStore(env, access)
	if err != nil {
		return nil, err
	}
	return s.Objects(), nil
}

// OpenStore connects to an API server; nothing is requested yet.
func OpenStore(env ui.Env, access kube.Access) (*kube.Store, error) {
	return kube.Open(kube.Config{
		Access: access, Node: "command-line", Agent: "weft/" + env.Version,
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
}

// Contexts returns the contexts of a kubeconfig; of $KUBECONFIG or the home directory if it is empty.
func Contexts(env ui.Env, kubeconfig string) ([]string, error) {
	if kubeconfig == "" {
		kubeconfig = env.Variable("KUBECONFIG", homeKubeconfig(env.Variable("HOME", "")))
	}
	var out []string
	for _, path := range filepath.SplitList(kubeconfig) {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
		var file struct {
			Contexts []struct {
				Name string `json:"name"`
			} `json:"contexts"`
		}
		if err := yaml.Unmarshal(b, &file); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
		}
		for _, c := range file.Contexts {
			out = append(out, c.Name)
		}
	}
	return out, nil
}
