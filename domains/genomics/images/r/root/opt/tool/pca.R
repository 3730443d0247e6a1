# Principal components of samples: Rscript pca.R COUNTS.tsv TOP COORDINATES.tsv PLOT.png
arguments <- commandArgs(trailingOnly = TRUE)
counts <- as.matrix(read.delim(arguments[1], row.names = 1, check.names = FALSE))
if (!is.numeric(counts) || ncol(counts) < 2 || nrow(counts) < 2) stop("a table of counts has two samples and two genes at least")
if (any(colnames(counts) == "") || anyDuplicated(colnames(counts))) stop("each sample has a name, and no two have the same")
if (any(is.na(counts)) || any(counts < 0) || any(colSums(counts) == 0)) stop("counts are numbers from 0 on, and no sample is all zero")

expression <- log2(t(t(counts) / colSums(counts)) * 1e6 + 1)
varying <- order(-apply(expression, 1, var), rownames(expression))
expression <- expression[head(varying, as.integer(arguments[2])), , drop = FALSE]
components <- prcomp(t(expression))
shares <- components$sdev^2 / sum(components$sdev^2)
n <- min(4, ncol(components$x))
coordinates <- data.frame(sample = rownames(components$x), signif(components$x[, seq_len(n), drop = FALSE], 8))
write.table(coordinates, arguments[3], sep = "\t", quote = FALSE, row.names = FALSE)

png(arguments[4], width = 800, height = 600, type = "cairo")
label <- function(i) sprintf("PC%d (%.1f %%)", i, 100 * shares[i])
plot(components$x[, 1], components$x[, 2], xlab = label(1), ylab = label(2), pch = 19, main = "Principal components of samples")
text(components$x[, 1], components$x[, 2], rownames(components$x), pos = 3, xpd = NA)
invisible(dev.off())
