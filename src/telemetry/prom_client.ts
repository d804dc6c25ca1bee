// The package's own index also loads its push gateway, and with it Node's HTTP client, TLS and zlib: that takes longer
// than the rest of the service.
import Counter from "prom-client/lib/counter.js";
import Gauge from "prom-client/lib/gauge.js";
import Histogram from "prom-client/lib/histogram.js";
import Registry from "prom-client/lib/registry.js";

export { Counter, Gauge, Histogram, Registry };
