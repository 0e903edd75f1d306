# Draws the ratios of a table of benchmarks as bars, each with its floor as a line. Called by
# draw: awk -f bars.awk ../results/benchmarks.md
#
# A row is | `figure` | floor | median | min – max | reference | ratio |. A ratio over 1.5 is left
# out: it compares two times, or a figure with the time of a disk.

function number(text) {
    gsub(/[* ]/, "", text)
    return text ~ /^[0-9.]+$/ ? text + 0 : -1
}

BEGIN { FS = "|"; left = 190; width = 400; top = 30; step = 24; most = 1.5 }

/^\| `/ {
    name = $2
    gsub(/[` ]/, "", name)
    ratio = number($7)
    if (ratio < 0 || ratio > most) next
    rows++
    y = top + rows * step
    wanted = number($3)
    if (wanted > most) wanted = -1
    kind = wanted < 0 ? "free" : ratio < wanted ? "below" : "good"
    bars = bars sprintf("<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", left - 8, y + 12, name)
    bars = bars sprintf("<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"14\" rx=\"2\"/>\n", kind, left, y + 1, ratio * width / most)
    bars = bars sprintf("<text x=\"%d\" y=\"%d\">%.2f</text>\n", left + ratio * width / most + 6, y + 12, ratio)
    if (wanted >= 0)
        bars = bars sprintf("<line class=\"floor\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", left + wanted * width / most, y - 2, left + wanted * width / most, y + 18)
}

END {
    height = top + (rows + 2) * step
    one = left + width / most
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", left + width + 60, height, left + width + 60, height
    print "<style>text{fill:#1f2328;font:12px Helvetica,Arial,sans-serif}.good{fill:#4ac26b}.free{fill:#afb8c1}.below{fill:#ff8182}.floor{stroke:#1f2328;stroke-width:2}.one{stroke:#57606a;stroke-dasharray:3 3}@media (prefers-color-scheme:dark){text{fill:#e6edf3}.good{fill:#2ea043}.free{fill:#6e7681}.below{fill:#da3633}.floor{stroke:#e6edf3}.one{stroke:#8b949e}}</style>"
    printf "<text x=\"%d\" y=\"18\">Ratio to the reference of the same run. A line marks the floor.</text>\n", left
    printf "<line class=\"one\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n%s", one, top + 14, one, height - step + 4, bars
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">1.0</text>\n</svg>\n", one, height - 6
}
